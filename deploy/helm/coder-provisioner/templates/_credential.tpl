{{/*
The variables of the credential. A key has its own tags. The pre-shared key's default name does not count as given, so that
a values file needs only the name of the key's Secret.
*/}}
{{- define "coder.env.credential" -}}
{{- $daemon := .Values.provisionerDaemon -}}
{{- if not (or $daemon.pskSecretName $daemon.keySecretName) -}}
{{- fail "set provisionerDaemon.keySecretName to the Secret of a provisioner key, or provisionerDaemon.pskSecretName to the Secret of the pre-shared key" -}}
{{- end -}}
{{- if $daemon.keySecretName -}}
{{- if and $daemon.pskSecretName (ne $daemon.pskSecretName "coder-provisioner-psk") -}}
{{- fail "set provisionerDaemon.pskSecretName or provisionerDaemon.keySecretName, but not both: daemons join with one credential" -}}
{{- end -}}
{{- if $daemon.tags -}}
{{- fail "provisionerDaemon.tags cannot be used with provisionerDaemon.keySecretName: a key has its own tags (coder provisioner keys create --tag)" -}}
{{- end }}
- name: CODER_PROVISIONER_DAEMON_KEY
  valueFrom:
    secretKeyRef:
      name: {{ $daemon.keySecretName | quote }}
      key: {{ $daemon.keySecretKey | quote }}
{{- else }}
- name: CODER_PROVISIONER_DAEMON_PSK
  valueFrom:
    secretKeyRef:
      name: {{ $daemon.pskSecretName | quote }}
      key: psk
{{- with $daemon.tags }}
{{- $tags := list }}
{{- range $key, $value := . }}
{{- if contains "," (printf "%s%v" $key $value) -}}
{{- fail (printf "the tag %s of provisionerDaemon.tags has a comma, which CODER_PROVISIONERD_TAGS cannot carry; use a provisioner key with that tag" $key) -}}
{{- end }}
{{- $tags = append $tags (printf "%s=%v" $key $value) }}
{{- end }}
- name: CODER_PROVISIONERD_TAGS
  value: {{ join "," $tags | quote }}
{{- end }}
{{- end }}
{{- end -}}
