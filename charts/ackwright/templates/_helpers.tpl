{{- define "ackwright.labels" -}}
app.kubernetes.io/name: ackwright
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "ackwright.selector" -}}
app.kubernetes.io/name: ackwright
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ackwright.namespaces" -}}
{{ .Values.watchNamespaces | default (list .Release.Namespace) | uniq | sortAlpha | join "," }}
{{- end }}
