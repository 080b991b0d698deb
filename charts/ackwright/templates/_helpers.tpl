{{- define "ackwright.selector" -}}
app.kubernetes.io/name: ackwright
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ackwright.labels" -}}
{{ include "ackwright.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The numbers of the shards; one empty number: the namespaces are not divided. */}}
{{- define "ackwright.shards" -}}
{{- if gt (int .Values.shards) 1 }}{{ range $number := untilStep 1 (int .Values.shards | add1 | int) 1 }}{{ if gt $number 1 }},{{ end }}{{ $number }}{{ end }}{{ end }}
{{- end }}

{{- define "ackwright.shardSelector" -}}
{{ include "ackwright.selector" .root }}
{{- if .shard }}
ackwright.io/shard: {{ .shard | quote }}
{{- end }}
{{- end }}

{{- define "ackwright.shardLabels" -}}
{{ include "ackwright.labels" .root }}
{{- if .shard }}
ackwright.io/shard: {{ .shard | quote }}
{{- end }}
{{- end }}

{{- /* Which logs `kubectl logs` reads for the operator. */}}
{{- define "ackwright.logs" -}}
{{ if gt (int .Values.shards) 1 }}-l app.kubernetes.io/name=ackwright --prefix{{ else }}deployment/ackwright-operator{{ end }}
{{- end }}

{{- define "ackwright.namespaces" -}}
{{ .Values.watchNamespaces | default (list .Release.Namespace) | uniq | sortAlpha | join "," }}
{{- end }}

{{- /* The Pod Security Standard "restricted", for the pods of the operator and of the test. */}}
{{- define "ackwright.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "ackwright.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The ServiceAccount's token, where Kubernetes would mount it, but valid for one hour and renewed by the kubelet. */}}
{{- define "ackwright.tokenVolume" -}}
name: token
projected:
  sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "ackwright.tokenMount" -}}
{name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- define "ackwright.placement" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Replicas are on different nodes if the scheduler can place them so. */}}
{{- define "ackwright.spread" -}}
{{- if and (not .root.Values.affinity) (gt (int .root.Values.replicas) 1) }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "ackwright.shardSelector" . | nindent 14 }}
{{- end }}
{{- end }}

{{- define "ackwright.ownRules" -}}
# The Lease by which replicas elect their leader, and by which each detects a dead watch. With `shards` each has its own;
# the operator may change all that there can be, so that the number of shards can be changed in both directions.
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, list, watch]}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [ackwright-operator{{ range untilStep 2 17 1 }}, ackwright-operator-{{ . }}{{ end }}]
  verbs: [get, patch]
{{- end }}
