{{- define "ackwright.selector" -}}
app.kubernetes.io/name: ackwright
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ackwright.labels" -}}
{{ include "ackwright.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
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
{{- if and (not .Values.affinity) (gt (int .Values.replicas) 1) }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "ackwright.selector" . | nindent 14 }}
{{- end }}
{{- end }}

{{- define "ackwright.ownRules" -}}
# The Lease by which replicas elect their leader, and by which each detects a dead watch.
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, list, watch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [ackwright-operator], verbs: [get, patch]}
{{- end }}
