{{/* The URL of the Service. */}}
{{- define "coder.clusterAccessURL" -}}
{{- if .Values.coder.tls.secretNames }}https{{ else }}http{{ end }}://coder.{{ .Release.Namespace }}.svc.cluster.local
{{- end -}}

{{/* server, or what the values say. */}}
{{- define "coder.args" -}}
{{- if .Values.coder.commandArgs -}}
{{ toYaml .Values.coder.commandArgs }}
{{- else if .Values.coder.workspaceProxy -}}
- wsproxy
- server
{{- else -}}
- server
{{- end -}}
{{- end -}}

{{/* How long a stopped server may take. */}}
{{- define "coder.gracePeriod" -}}
{{- if not (kindIs "invalid" .Values.coder.terminationGracePeriodSeconds) -}}
{{ .Values.coder.terminationGracePeriodSeconds }}
{{- else if or .Values.coder.workspaceProxy (include "coder.envIs" (list . "CODER_PROVISIONER_DAEMONS" "0")) -}}
60
{{- else -}}
1860
{{- end -}}
{{- end -}}

{{/* "true" if the server has a database that outlives its pod, or may have one in envFrom. */}}
{{- define "coder.keepsData" -}}
{{- if or .Values.coder.persistence.enabled .Values.coder.envFrom (include "coder.hasEnv" (list . "CODER_PG_CONNECTION_URL")) (include "coder.hasEnv" (list . "CODER_PG_CONNECTION_URL_FILE")) .Values.coder.workspaceProxy -}}
true
{{- end -}}
{{- end -}}

{{/* The variables that the chart sets. KUBE_POD_IP is before the variable that refers to it. */}}
{{- define "coder.env.server" -}}
- name: CODER_HTTP_ADDRESS
  value: {{ include "coder.listen" (list . "8080") | quote }}
{{- include "coder.env.prometheusAddress" . }}
{{- if not (include "coder.hasEnv" (list . "CODER_PPROF_ADDRESS")) }}
- name: CODER_PPROF_ADDRESS
  value: {{ include "coder.listen" (list . "6060") | quote }}
{{- end }}
{{- include "coder.env.cache" . }}
{{- if not (include "coder.hasEnv" (list . "CODER_DATA_DIR")) }}
- name: CODER_DATA_DIR
  value: /var/lib/coder
{{- end }}
{{- with .Values.provisionerDaemon.pskSecretName }}
- name: CODER_PROVISIONER_DAEMON_PSK
  valueFrom:
    secretKeyRef:
      name: {{ . | quote }}
      key: psk
{{- end }}
{{- if and .Values.coder.envUseClusterAccessURL (not (include "coder.hasEnv" (list . "CODER_ACCESS_URL"))) }}
- name: CODER_ACCESS_URL
  value: {{ include "coder.clusterAccessURL" . | quote }}
{{- end }}
- name: KUBE_POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: CODER_DERP_SERVER_RELAY_URL
  value: http://{{ if .Values.coder.singleStackIPv6 }}[$(KUBE_POD_IP)]{{ else }}$(KUBE_POD_IP){{ end }}:8080
{{- with .Values.coder.tls.secretNames }}
{{- $certificates := list }}
{{- $keys := list }}
{{- range . }}
{{- $certificates = append $certificates (printf "/etc/ssl/certs/coder/%s/tls.crt" .) }}
{{- $keys = append $keys (printf "/etc/ssl/certs/coder/%s/tls.key" .) }}
{{- end }}
- name: CODER_TLS_ENABLE
  value: "true"
- name: CODER_TLS_ADDRESS
  value: {{ include "coder.listen" (list $ "8443") | quote }}
- name: CODER_TLS_CERT_FILE
  value: {{ join "," $certificates | quote }}
- name: CODER_TLS_KEY_FILE
  value: {{ join "," $keys | quote }}
{{- end }}
{{- if not (include "coder.hasEnv" (list . "GOMEMLIMIT")) }}
- name: GOMEMLIMIT
  valueFrom:
    resourceFieldRef:
      resource: limits.memory
{{- end }}
{{- end -}}
