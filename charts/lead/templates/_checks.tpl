{{/* Contradictions that a schema cannot express; included by the templates that would stumble over them. */}}
{{- define "lead.checks" -}}
{{- range $name, $profile := .Values.storage.profiles }}
{{- if and (not $profile.endpoint) (not $.Values.minio.enabled) }}
{{- fail (printf "storage.profiles.%s.endpoint is empty, which means the embedded MinIO, but minio.enabled is false; set the endpoint (host:port) or enable minio" $name) }}
{{- end }}
{{- if and (not $profile.endpoint) $profile.existingSecret }}
{{- fail (printf "storage.profiles.%s.existingSecret is %q but its endpoint is empty, which means the embedded MinIO, whose Secret the chart makes; set the endpoint or drop existingSecret" $name $profile.existingSecret) }}
{{- end }}
{{- if and (not $profile.endpoint) $profile.operatorSecret }}
{{- fail (printf "storage.profiles.%s.operatorSecret is %q but its endpoint is empty, which means the embedded MinIO, whose Secrets the chart makes; set the endpoint or drop operatorSecret" $name $profile.operatorSecret) }}
{{- end }}
{{- range $other, $taken := $.Values.storage.profiles }}
{{- if and $profile.operatorSecret (eq $profile.operatorSecret (include "lead.secretName" (dict "name" $other "profile" $taken))) }}
{{- fail (printf "storage.profiles.%s.operatorSecret is %q, which pods mount for the profile %s, so that they could delete what the operator may; name another Secret, or drop operatorSecret" $name $profile.operatorSecret $other) }}
{{- end }}
{{- end }}
{{- if and (not $profile.endpoint) $profile.secure }}
{{- fail (printf "storage.profiles.%s.secure is true but its endpoint is empty, which means the embedded MinIO, which speaks plain HTTP inside the cluster; set secure to false or give an endpoint" $name) }}
{{- end }}
{{- if and $profile.endpoint (not $profile.existingSecret) }}
{{- fail (printf "storage.profiles.%s has the endpoint %s but no existingSecret; create a Secret with the keys access-key and secret-key in each namespace for runs and in %s, and name it" $name $profile.endpoint $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- if .Values.exampleData.enabled }}
{{- if not (hasKey .Values.storage.profiles .Values.exampleData.profile) }}
{{- fail (printf "exampleData.profile is %q; the storage profiles are %s" .Values.exampleData.profile (keys .Values.storage.profiles | sortAlpha | join ", ")) }}
{{- end }}
{{- $names := (include "lead.runNamespaces" . | fromJson).names }}
{{- if and .Values.exampleData.namespace (not (has .Values.exampleData.namespace $names)) }}
{{- fail (printf "exampleData.namespace is %q; the namespaces for runs are %s" .Values.exampleData.namespace ($names | join ", ")) }}
{{- end }}
{{- end }}
{{- end }}
