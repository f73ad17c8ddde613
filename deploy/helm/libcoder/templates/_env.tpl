{{/* "true" if coder.env has the variable. Takes a list: the context, the name. */}}
{{- define "coder.hasEnv" -}}
{{- $name := index . 1 -}}
{{- range (index . 0).Values.coder.env -}}
{{- if eq .name $name -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if coder.env has the variable with this literal value. Takes a list: the context, the name, the value. */}}
{{- define "coder.envIs" -}}
{{- $name := index . 1 -}}
{{- $value := index . 2 -}}
{{- range (index . 0).Values.coder.env -}}
{{- if and (eq .name $name) (eq (toString .value) $value) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The address that means every interface, with a port. Takes a list: the context, the port. */}}
{{- define "coder.listen" -}}
{{- ternary "[::]" "0.0.0.0" (default false (index . 0).Values.coder.singleStackIPv6) }}:{{ index . 1 -}}
{{- end -}}

{{/* The directory of the caches, a volume of the chart, unless coder.env has one. */}}
{{- define "coder.env.cache" -}}
{{- if not (include "coder.hasEnv" (list . "CODER_CACHE_DIRECTORY")) }}
- name: CODER_CACHE_DIRECTORY
  value: /var/cache/coder
{{- end }}
{{- end -}}

{{/* The address of the metrics, unless coder.env has one. */}}
{{- define "coder.env.prometheusAddress" -}}
{{- if not (include "coder.hasEnv" (list . "CODER_PROMETHEUS_ADDRESS")) }}
- name: CODER_PROMETHEUS_ADDRESS
  value: {{ include "coder.listen" (list . "2112") | quote }}
{{- end }}
{{- end -}}

{{/* The port of the metrics, only where they are turned on. */}}
{{- define "coder.port.prometheus" -}}
{{- if include "coder.envIs" (list . "CODER_PROMETHEUS_ENABLE" "true") }}
- name: prometheus-http
  containerPort: 2112
  protocol: TCP
{{- end }}
{{- end -}}
