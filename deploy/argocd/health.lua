-- The health of an ackwright.io/DeliveryPipeline for Argo CD; docs/gitops.md describes the installation.
local hs = {status = "Progressing", message = "the operator has not reconciled it yet"}

if obj.metadata.deletionTimestamp ~= nil then
  hs.message = "being deleted"
  return hs
end

local status = obj.status
-- A status about an earlier generation does not describe the current one.
if status == nil or status.conditions == nil or status.observedGeneration ~= obj.metadata.generation then
  return hs
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end

local function is(kind, value)
  return conditions[kind] ~= nil and conditions[kind].status == value
end

local function health(value, kind)
  hs.status = value
  hs.message = ""
  if conditions[kind] ~= nil then
    hs.message = conditions[kind].reason
    if conditions[kind].message ~= nil and conditions[kind].message ~= "" then
      hs.message = hs.message .. ": " .. conditions[kind].message
    end
  end
  return hs
end

if is("Stalled", "True") then
  return health("Degraded", "Stalled")
end
if is("GuaranteeMet", "False") then
  return health("Degraded", "GuaranteeMet")
end
if is("Reconciling", "True") then
  return health("Progressing", "Reconciling")
end
if is("Ready", "True") then
  return health("Healthy", "Ready")
end
if conditions.JobRunning ~= nil and conditions.JobRunning.reason == "Suspended" then
  return health("Suspended", "JobRunning")
end
return health("Progressing", "Ready")
