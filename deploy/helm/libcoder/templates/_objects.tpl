{{/* The ServiceAccount, unless an existing one is used. */}}
{{- define "coder.serviceAccount" -}}
{{- if not .Values.coder.serviceAccount.disableCreate }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Values.coder.serviceAccount.name | quote }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "coder.labels" . | nindent 4 }}
  annotations:
    {{- toYaml .Values.coder.serviceAccount.annotations | nindent 4 }}
{{- end }}
{{- end -}}

{{/* What the ServiceAccount may do in the namespaces of workspaces: one Role and one RoleBinding in each. */}}
{{- define "coder.rbac" -}}
{{- $account := .Values.coder.serviceAccount -}}
{{- $namespaces := list (dict "name" .Release.Namespace) -}}
{{- with $account.workspaceNamespaces -}}
{{- range .namespaces -}}
{{- if eq .name $.Release.Namespace -}}
{{- fail (printf "coder.serviceAccount.workspaceNamespaces lists %s, the namespace of the release, which coder.serviceAccount itself is about" .name) -}}
{{- end -}}
{{- $namespaces = append $namespaces . -}}
{{- end -}}
{{- end -}}
{{- range $namespaces -}}
{{- $perms := ternary .workspacePerms $account.workspacePerms (hasKey . "workspacePerms") -}}
{{- $deployments := ternary .enableDeployments $account.enableDeployments (hasKey . "enableDeployments") -}}
{{- $extra := ternary .extraRules $account.extraRules (hasKey . "extraRules") -}}
{{- if $perms }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $account.name }}-workspace-perms
  namespace: {{ .name }}
  labels:
    {{- include "coder.labels" $ | nindent 4 }}
rules:
  {{- include "coder.rule" (list "" "pods") | nindent 2 }}
  {{- include "coder.rule" (list "" "persistentvolumeclaims") | nindent 2 }}
  {{- if $deployments }}
  {{- include "coder.rule" (list "apps" "deployments") | nindent 2 }}
  {{- end }}
  {{- with $extra }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $account.name | quote }}
  namespace: {{ .name }}
  labels:
    {{- include "coder.labels" $ | nindent 4 }}
subjects:
  - kind: ServiceAccount
    name: {{ $account.name | quote }}
    namespace: {{ $.Release.Namespace }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $account.name }}-workspace-perms
{{- end }}
{{- end -}}
{{- end -}}

{{/* Everything with one kind of object. Takes a list: the API group, the resource. */}}
{{- define "coder.rule" -}}
- apiGroups: [{{ index . 0 | quote }}]
  resources: [{{ index . 1 | quote }}]
  verbs: [create, delete, deletecollection, get, list, patch, update, watch]
{{- end -}}

{{/* Further objects of the values: strings are templates, everything else is YAML. */}}
{{- define "coder.extraTemplates" -}}
{{- range .Values.extraTemplates }}
---
{{ if kindIs "string" . }}{{ tpl . $ }}{{ else }}{{ tpl (toYaml .) $ }}{{ end }}
{{- end }}
{{- end -}}

{{/* How many pods voluntary disruptions (node drains, upgrades of the cluster) must leave. */}}
{{- define "coder.podDisruptionBudget" -}}
{{- with .Values.coder.podDisruptionBudget }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "coder.name" $ }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "coder.labels" $ | nindent 4 }}
spec:
  {{- toYaml . | nindent 2 }}
  selector:
    matchLabels:
      {{- include "coder.selectorLabels" $ | nindent 6 }}
{{- end }}
{{- end -}}

{{/*
How Prometheus finds the metrics, for clusters with the Prometheus operator. Takes a list: the context, the name of the port. The
port prometheus-http is open only where metrics are turned on.
*/}}
{{- define "coder.podMonitor" -}}
{{- $port := index . 1 -}}
{{- with index . 0 -}}
{{- if .Values.coder.podMonitor.enabled }}
{{- if and (eq $port "prometheus-http") (not (include "coder.envIs" (list . "CODER_PROMETHEUS_ENABLE" "true"))) -}}
{{- fail "coder.podMonitor.enabled needs CODER_PROMETHEUS_ENABLE with the value \"true\" in coder.env" -}}
{{- end }}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "coder.name" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "coder.labels" . | nindent 4 }}
    {{- with .Values.coder.podMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "coder.selectorLabels" . | nindent 6 }}
  podMetricsEndpoints:
    - port: {{ $port }}
      path: /metrics
      interval: {{ .Values.coder.podMonitor.interval }}
{{- end }}
{{- end -}}
{{- end -}}
