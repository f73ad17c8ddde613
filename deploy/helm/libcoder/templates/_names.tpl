{{/* The name of the objects: nameOverride, or the chart's name. */}}
{{- define "coder.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The labels by which a Deployment finds its pods. They are immutable in the cluster: never add one. */}}
{{- define "coder.selectorLabels" -}}
app.kubernetes.io/name: {{ include "coder.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The labels of every object. */}}
{{- define "coder.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "coder.selectorLabels" . }}
app.kubernetes.io/part-of: {{ include "coder.name" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The image of the container. A chart from a checkout has no release to name. */}}
{{- define "coder.image" -}}
{{- $image := .Values.coder.image -}}
{{- if and (not $image.tag) (eq .Chart.AppVersion "0.0.0-dev") -}}
{{- fail "set coder.image.tag: this chart comes from a checkout, so it has no released image as its default" -}}
{{- end -}}
{{ $image.repo }}:{{ $image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end -}}
