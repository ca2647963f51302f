{{/* Names. A release that is called pointsman gives pointsman-namesrv, others RELEASE-pointsman-namesrv. */}}
{{- define "pointsman.fullname" -}}
{{- if contains "pointsman" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-pointsman{{ end }}
{{- end }}

{{- define "pointsman.namesrv" -}}{{ include "pointsman.fullname" . }}-namesrv{{- end }}

{{/* The DNS name that every name server's certificate contains. */}}
{{- define "pointsman.namesrv.host" -}}{{ include "pointsman.namesrv" . }}.{{ .Release.Namespace }}.svc{{- end }}

{{/* (dict "root" . "image" "namesrv") */}}
{{- define "pointsman.image" -}}
{{- $images := .root.Values.images -}}
{{ with $images.registry }}{{ . }}/{{ end }}pointsman-{{ .image }}:{{ $images.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "pointsman.pullSecrets" -}}
{{- with .Values.images.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* (dict "root" . "component" "namesrv") */}}
{{- define "pointsman.selector" -}}
app.kubernetes.io/name: pointsman
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "pointsman.labels" -}}
{{ include "pointsman.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "pointsman.tls.secretName" -}}
{{ .Values.tls.secretName | default (printf "%s-tls" (include "pointsman.namesrv" .)) }}
{{- end }}

{{/* Sections of a configuration file, as TOML: strings, numbers, booleans and lists are written as in JSON. */}}
{{- define "pointsman.toml" -}}
{{- range $section, $settings := . }}
[{{ $section }}]
{{- range $key, $value := $settings }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* What every container of ours is denied. */}}
{{- define "pointsman.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "pointsman.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  # The images' user.
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* (dict "claim" .Values... "mode" "ReadWriteOnce"): the specification of a volume claim. */}}
{{- define "pointsman.claim" -}}
accessModes: [{{ .mode }}]
{{- with .claim.className }}
storageClassName: {{ . }}
{{- end }}
resources: {requests: {storage: {{ .claim.size }}}}
{{- end }}

{{- define "pointsman.report.histories" -}}
{{ .Values.report.histories.existingClaim | default (printf "%s-histories" (include "pointsman.fullname" .)) }}
{{- end }}
{{- define "pointsman.report.warehouse" -}}
{{ .Values.report.warehouse.existingClaim | default (printf "%s-report" (include "pointsman.fullname" .)) }}
{{- end }}

{{- define "pointsman.redis.tlsSecret" -}}
{{- if ne .Values.tls.mode "none" -}}
{{ .Values.redis.tlsSecretName | default (printf "%s-agent-tls" .Values.redis.name) }}
{{- end -}}
{{- end }}
