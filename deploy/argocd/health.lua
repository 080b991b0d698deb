-- The health of an ackwright.io/DeliveryPipeline for Argo CD (docs/gitops.md says how to give it to Argo CD).
local hs = {status = "Progressing", message = "the operator has not looked at it yet"}

if obj.metadata.deletionTimestamp ~= nil then
  hs.message = "it is being deleted"
  return hs
end

local status = obj.status
-- What is said of an earlier spec says nothing of this one.
if status == nil or status.conditions == nil or status.observedGeneration ~= obj.metadata.generation then
  return hs
end

local found = {}
for _, condition in ipairs(status.conditions) do
  found[condition.type] = condition
end

local function is(kind, truth)
  return found[kind] ~= nil and found[kind].status == truth
end

local function say(health, kind)
  hs.status = health
  hs.message = ""
  if found[kind] ~= nil then
    hs.message = found[kind].reason
    if found[kind].message ~= nil and found[kind].message ~= "" then
      hs.message = hs.message .. ": " .. found[kind].message
    end
  end
  return hs
end

if is("Stalled", "True") then
  return say("Degraded", "Stalled")
end
if is("GuaranteeMet", "False") then
  return say("Degraded", "GuaranteeMet")
end
if is("Reconciling", "True") then
  return say("Progressing", "Reconciling")
end
if is("Ready", "True") then
  return say("Healthy", "Ready")
end
if found.JobRunning ~= nil and found.JobRunning.reason == "Suspended" then
  return say("Suspended", "JobRunning")
end
return say("Progressing", "Ready")
