{{/* The metadata of a Deployment. */}}
{{- define "coder.deploymentMetadata" -}}
name: {{ include "coder.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "coder.labels" . | nindent 2 }}
  {{- with .Values.coder.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  {{- toYaml .Values.coder.annotations | nindent 2 }}
{{- end -}}

{{/* The metadata of its pods. Takes a list: the context, the component. */}}
{{- define "coder.podMetadata" -}}
{{- $context := index . 0 -}}
labels:
  {{- include "coder.labels" $context | nindent 2 }}
  {{- with $context.Values.coder.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  com.coder/component: {{ index . 1 }}
  app.kubernetes.io/component: {{ index . 1 }}
  {{- with $context.Values.coder.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What the values say about where and how the pod runs. */}}
{{- define "coder.podSpec" -}}
{{- $coder := .Values.coder -}}
serviceAccountName: {{ $coder.serviceAccount.name | quote }}
restartPolicy: Always
{{- with $coder.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $coder.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $coder.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $coder.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $coder.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $coder.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $coder.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $coder.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $coder.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What the values say about the container, besides environment, ports, probes and mounts. */}}
{{- define "coder.container" -}}
{{- $coder := .Values.coder -}}
name: coder
image: {{ include "coder.image" . | quote }}
imagePullPolicy: {{ $coder.image.pullPolicy }}
command:
  {{- toYaml $coder.command | nindent 2 }}
resources:
  {{- include "coder.resources" . | nindent 2 }}
lifecycle:
  {{- toYaml $coder.lifecycle | nindent 2 }}
securityContext:
  {{- toYaml $coder.securityContext | nindent 2 }}
{{- end -}}

{{/* A part of the resources replaces the whole default, so that a request alone leaves the container without limits. */}}
{{- define "coder.resources" -}}
{{- if .Values.coder.resources -}}
{{ toYaml .Values.coder.resources }}
{{- else -}}
limits: { cpu: 2000m, memory: 4096Mi }
requests: { cpu: 2000m, memory: 4096Mi }
{{- end -}}
{{- end -}}

{{/*
A probe over HTTP. Takes a list: the settings, the port. The settings are the fields of a probe, with "enabled" and
"path" beside them.
*/}}
{{- define "coder.probe" -}}
{{- $settings := index . 0 -}}
httpGet:
  path: {{ $settings.path }}
  port: {{ index . 1 }}
  scheme: HTTP
{{- with omit $settings "enabled" "path" }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* "true" if coder.volumeMounts of the values mounts something there. Takes a list: the context, the path. */}}
{{- define "coder.hasMount" -}}
{{- $path := index . 1 -}}
{{- range (index . 0).Values.coder.volumeMounts -}}
{{- if eq (trimSuffix "/" .mountPath) $path -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The directories that stay writable with a read-only root, and the certificate authorities of the values. */}}
{{- define "coder.volumeMounts" -}}
{{- if not (include "coder.hasMount" (list . "/tmp")) }}
- name: coder-tmp
  mountPath: /tmp
{{- end }}
{{- if not (include "coder.hasMount" (list . "/var/cache/coder")) }}
- name: coder-cache
  mountPath: /var/cache/coder
{{- end }}
{{- range .Values.coder.certs.secrets }}
- name: ca-cert-{{ .name }}
  mountPath: /etc/ssl/certs/{{ .name }}.crt
  subPath: {{ .key | quote }}
  readOnly: true
{{- end }}
{{- with .Values.coder.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The volumes of those mounts. */}}
{{- define "coder.volumes" -}}
{{- if not (include "coder.hasMount" (list . "/tmp")) }}
- name: coder-tmp
  emptyDir: {}
{{- end }}
{{- if not (include "coder.hasMount" (list . "/var/cache/coder")) }}
- name: coder-cache
  emptyDir: {}
{{- end }}
{{- range .Values.coder.certs.secrets }}
- name: ca-cert-{{ .name }}
  secret:
    secretName: {{ .name | quote }}
{{- end }}
{{- with .Values.coder.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
