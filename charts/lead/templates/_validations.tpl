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
{{- $credentials := include "lead.storeCredentials" (dict "root" $ "name" $name "profile" $profile) }}
{{- if and (not $profile.endpoint) (ne $credentials "webIdentity") }}
{{- fail (printf "storage.profiles.%s.credentials is %s but its endpoint is empty, which means the embedded MinIO, which gives pods no lasting keys; drop credentials or give an endpoint" $name $credentials) }}
{{- end }}
{{- if and (not $profile.endpoint) (or $profile.buildSecret $profile.viewSecret $profile.uiSecret $profile.stsEndpoint $profile.roleArn $profile.roleArns $profile.caConfigMap) }}
{{- fail (printf "storage.profiles.%s sets buildSecret, viewSecret, uiSecret, stsEndpoint, roleArn, roleArns or caConfigMap but its endpoint is empty, which means the embedded MinIO, for which the chart makes them; set the endpoint or drop them" $name) }}
{{- end }}
{{- if and (not $profile.endpoint) $profile.secure (not $.Values.minio.tls.enabled) }}
{{- fail (printf "storage.profiles.%s.secure is true but its endpoint is empty, which means the embedded MinIO, and minio.tls.enabled is false; set minio.tls.enabled to true or give an endpoint" $name) }}
{{- end }}
{{- if eq ($profile.addressing | default "path") "virtualHost" }}
{{- if not $profile.endpoint }}
{{- fail (printf "storage.profiles.%s.addressing is virtualHost but its endpoint is empty, which means the embedded MinIO, which has no host name for each bucket; set the endpoint or drop addressing" $name) }}
{{- end }}
{{- $host := regexReplaceAll ":[0-9]+$" $profile.endpoint "" }}
{{- if regexMatch "^(\\[.*\\]|[0-9.]+)$" $host }}
{{- fail (printf "storage.profiles.%s.addressing is virtualHost but its endpoint %s is an IP address, below which there are no host names; name the host, or set addressing to path" $name $profile.endpoint) }}
{{- end }}
{{- if and $profile.secure (contains "." $profile.bucket) }}
{{- fail (printf "storage.profiles.%s.addressing is virtualHost but its bucket %s has a dot, and a certificate for *.%s is none for %s.%s; set addressing to path" $name $profile.bucket $host $profile.bucket $host) }}
{{- end }}
{{- end }}
{{- if and $profile.endpoint (eq $credentials "static") (not $profile.existingSecret) }}
{{- fail (printf "storage.profiles.%s has the endpoint %s but no existingSecret; create a Secret with the keys access-key and secret-key in each namespace for runs and in %s, and name it" $name $profile.endpoint $.Release.Namespace) }}
{{- end }}
{{- if and $profile.endpoint (eq $credentials "webIdentity") (not $profile.operatorSecret) }}
{{- fail (printf "storage.profiles.%s.credentials is webIdentity, which is for pods, and operatorSecret is empty; create a Secret with the operator's access-key and secret-key in %s, and name it" $name $.Release.Namespace) }}
{{- end }}
{{- if not $.Values.runs.clusterWide }}
{{- range $profile.namespaces }}
{{- if not (has . (include "lead.runNamespaces" $ | fromJson).names) }}
{{- fail (printf "storage.profiles.%s.namespaces names %s; the namespaces for runs are %s" $name . ((include "lead.runNamespaces" $ | fromJson).names | join ", ")) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .Values.runs.serviceAccountName .Values.runs.buildServiceAccountName }}
{{- fail (printf "runs.serviceAccountName and runs.buildServiceAccountName are both %s; training and build pods have different rights in the store, by their ServiceAccounts; give them two names" .Values.runs.serviceAccountName) }}
{{- end }}
{{- $spaces := (include "lead.runNamespaces" . | fromJson).names }}
{{- if and (has .Release.Namespace $spaces) (not (include "lead.oneNamespace" .)) (not .Values.runs.allowInReleaseNamespace) }}
{{- fail (printf "the namespaces for runs are %s%s, and %s is the release's own: who may edit there reads the store's root password and the operator's key; take it out of runs.namespaces, install the release into a namespace of its own, or set runs.allowInReleaseNamespace to true where all of them trust each other" ($spaces | join ", ") (ternary ", with runs.clusterWide all others" "" .Values.runs.clusterWide) .Release.Namespace) }}
{{- end }}
{{- if and .Values.admissionPolicies.imagesByDigest (not (contains "@sha256:" (include "lead.image" .Values.images.trainer))) }}
{{- fail (printf "admissionPolicies.imagesByDigest is true, but images.trainer.tag is %q and its digest empty, by which no pod would be admitted; set images.trainer.digest" .Values.images.trainer.tag) }}
{{- end }}
{{- range $name, $image := .Values.images }}
{{- if and $image.digest (contains "@" $image.tag) }}
{{- fail (printf "images.%s.digest is set, and its tag %q names a digest too; keep one of them" $name $image.tag) }}
{{- end }}
{{- end }}
{{- with .Values.ui.proxy }}
{{- if and .userHeader (not (and .secretHeader .secretName)) }}
{{- fail "ui.proxy.userHeader is set without secretHeader and secretName: then everyone who reaches the page could name themselves; create a Secret with the key secret and let the proxy send it" }}
{{- end }}
{{- end }}
{{- if .Values.tensorboard.enabled }}
{{- if not (hasKey .Values.storage.profiles .Values.tensorboard.profile) }}
{{- fail (printf "tensorboard.profile is %q; the storage profiles are %s" .Values.tensorboard.profile (keys .Values.storage.profiles | sortAlpha | join ", ")) }}
{{- end }}
{{- $profile := get .Values.storage.profiles .Values.tensorboard.profile }}
{{- if not (include "lead.viewSecretName" (dict "name" .Values.tensorboard.profile "profile" $profile)) }}
{{- fail (printf "tensorboard.enabled is true, but storage.profiles.%s names no key for it; create a Secret with an access-key and secret-key that read below runs/ in each namespace for runs, and name it in viewSecret" .Values.tensorboard.profile) }}
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
{{- $profile := get .Values.storage.profiles .Values.exampleData.profile }}
{{- if not (.Values.exampleData.existingSecret | default (include "lead.dataSecretName" (dict "name" .Values.exampleData.profile "profile" $profile))) }}
{{- fail (printf "exampleData.profile is %s, whose pods have no key that may write raw data; name a Secret with one, such as lead-data-%s, in exampleData.existingSecret" .Values.exampleData.profile .Values.exampleData.profile) }}
{{- end }}
{{- $served := (include "lead.profileNamespaces" (dict "root" . "profile" $profile) | fromJson).names }}
{{- if not (has (.Values.exampleData.namespace | default (first $names)) $served) }}
{{- fail (printf "exampleData.namespace is %s, which may not use the profile %s; its namespaces are %s" (.Values.exampleData.namespace | default (first $names)) .Values.exampleData.profile ($served | join ", ")) }}
{{- end }}
{{- $namespace := .Values.exampleData.namespace | default (first $names) }}
{{- $sources := prepend (include "lead.sharedSources" (dict "root" . "profile" (get .Values.storage.profiles .Values.exampleData.profile)) | fromJson).prefixes (printf "datasets/%s/" $namespace) }}
{{- $readable := false }}
{{- range $sources }}{{ if hasPrefix . (printf "%s/" $.Values.exampleData.prefix) }}{{ $readable = true }}{{ end }}{{ end }}
{{- if not $readable }}
{{- fail (printf "exampleData.prefix is %q, which no cache of namespace %s may read; set it to datasets/%s/carla_demo, or to a folder below %s" .Values.exampleData.prefix $namespace $namespace ($sources | join ", ")) }}
{{- end }}
{{- end }}
{{- end }}
