{{/* Names, labels and the security contexts that every pod template of this chart uses. */}}

{{- define "lead.name" -}}
{{ .Values.nameOverride | default "lead" }}
{{- end }}

{{/* What the names of the release's objects begin with. */}}
{{- define "lead.fullname" -}}
{{ .Values.fullnameOverride | default .Release.Name }}
{{- end }}

{{- define "lead.labels" -}}
{{ with .root.Values.commonLabels }}{{ toYaml . }}
{{ end -}}
app.kubernetes.io/name: {{ include "lead.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .component }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "lead.selector" -}}
app.kubernetes.io/name: {{ include "lead.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "lead.image" -}}
{{ .repository }}:{{ .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}

{{/* What the restricted Pod Security Standard asks of a pod, and the user of all images unless the platform chooses. */}}
{{- define "lead.podSecurity" -}}
runAsNonRoot: true
{{- range $key := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- with get $.Values.podSecurity $key }}
{{ $key }}: {{ int64 . }}
{{- end }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "lead.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The namespaces where runs may live, as a JSON list under the key `names`. */}}
{{- define "lead.runNamespaces" -}}
{{- dict "names" (.Values.runs.namespaces | default (list .Release.Namespace) | uniq) | toJson }}
{{- end }}

{{/* Namespaces that the operator sees and where nothing may run, as a JSON list under `names`: with clusterWide its own. */}}
{{- define "lead.refusedNamespaces" -}}
{{- $refused := and .Values.runs.clusterWide (not .Values.runs.allowInReleaseNamespace) }}
{{- dict "names" (ternary (list .Release.Namespace) list $refused) | toJson }}
{{- end }}

{{/* Whether one namespace holds all runs: then its people own all raw data and weights. */}}
{{- define "lead.oneNamespace" -}}
{{- if and (not .Values.runs.clusterWide) (eq 1 (len (include "lead.runNamespaces" . | fromJson).names)) }}yes{{ end }}
{{- end }}

{{/* Folders of a profile that every namespace for runs may read, as a JSON list under `prefixes`; each ends with /. */}}
{{- define "lead.sharedPrefixes" -}}
{{- $prefixes := list }}
{{- range .profile.shared | default (ternary (list "datasets" "weights") list (eq "yes" (include "lead.oneNamespace" .root))) }}
{{- $prefixes = append $prefixes (printf "%s/" (trimSuffix "/" .)) }}
{{- end }}
{{- dict "prefixes" $prefixes | toJson }}
{{- end }}

{{/* Of the namespaces for runs those that may use a profile, as a JSON list under `names`. */}}
{{- define "lead.profileNamespaces" -}}
{{- $names := list }}
{{- range (include "lead.runNamespaces" .root | fromJson).names }}
{{- if or (not $.profile.namespaces) (has . $.profile.namespaces) }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- dict "names" $names | toJson }}
{{- end }}

{{/* Those of them that hold raw data. */}}
{{- define "lead.sharedSources" -}}
{{- $prefixes := list }}
{{- range (include "lead.sharedPrefixes" . | fromJson).prefixes }}
{{- if hasPrefix "datasets/" . }}{{ $prefixes = append $prefixes . }}{{ end }}
{{- end }}
{{- dict "prefixes" $prefixes | toJson }}
{{- end }}

{{/* Those of them that training pods may read. */}}
{{- define "lead.sharedWeights" -}}
{{- $prefixes := list }}
{{- range (include "lead.sharedPrefixes" . | fromJson).prefixes }}
{{- if hasPrefix "weights/" . }}{{ $prefixes = append $prefixes . }}{{ end }}
{{- end }}
{{- dict "prefixes" $prefixes | toJson }}
{{- end }}

{{/* The policy settings of the operator: the values, and what follows from the release itself. */}}
{{- define "lead.policy" -}}
{{- $policy := deepCopy .Values.policy }}
{{- $_ := set $policy "reservedClaims" (list (printf "data-%s-minio-*" (include "lead.fullname" .))) }}
{{- $_ := set $policy "refusedNamespaces" (include "lead.refusedNamespaces" . | fromJson).names }}
{{- $policy | toJson }}
{{- end }}

{{/* host:port of a profile's store. */}}
{{- define "lead.endpoint" -}}
{{- if .profile.endpoint }}{{ .profile.endpoint }}{{ else }}{{ include "lead.fullname" .root }}-minio.{{ .root.Release.Namespace }}.svc:9000{{ end }}
{{- end }}

{{/* Name of the Secret with the credentials that pods mount. */}}
{{- define "lead.secretName" -}}
{{- .profile.existingSecret | default (printf "lead-s3-%s" .name) }}
{{- end }}

{{/* static or webIdentity: how pods prove to a profile's store who they are. */}}
{{- define "lead.storeCredentials" -}}
{{- .profile.credentials | default (ternary "static" "webIdentity" (not (empty .profile.endpoint))) }}
{{- end }}

{{/* "true" where a profile's store is reached by TLS. */}}
{{- define "lead.secure" -}}
{{- ternary (.profile.secure | default false) .root.Values.minio.tls.enabled (not (empty .profile.endpoint)) }}
{{- end }}

{{/* Name of the ConfigMap with the authority of a profile's store, empty where there is none. */}}
{{- define "lead.storeCa" -}}
{{- if .profile.endpoint }}{{ .profile.caConfigMap | default "" }}{{ else if .root.Values.minio.tls.enabled }}lead-store-ca-{{ .name }}{{ end }}
{{- end }}

{{/* Name of the Secret with the key of people's raw data and weights, in each namespace for runs. */}}
{{- define "lead.dataSecretName" -}}
{{- if .profile.endpoint }}{{ .profile.existingSecret | default "" }}{{ else }}lead-data-{{ .name }}{{ end }}
{{- end }}

{{/* Name of the Secret with the key that reads results, in each namespace for runs. */}}
{{- define "lead.viewSecretName" -}}
{{- if .profile.endpoint }}{{ .profile.viewSecret | default .profile.existingSecret | default "" }}{{ else }}lead-view-{{ .name }}{{ end }}
{{- end }}

{{/* Sources of a projected volume with a store's key and, where it has one of its own, its authority. */}}
{{- define "lead.storeKeySources" -}}
- secret: {name: {{ .secret }}, optional: {{ .optional }}}
{{- with include "lead.storeCa" . }}
- configMap: {name: {{ . }}, optional: {{ $.optional }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- end }}

{{/* Name of the Secret with the operator's own credentials, in the release's namespace. */}}
{{- define "lead.operatorSecretName" -}}
{{- .profile.operatorSecret | default .profile.existingSecret | default (printf "%s-operator-s3-%s" (include "lead.fullname" .root) .name) }}
{{- end }}

{{/* Profiles whose pods mount the very Secret of the operator, as a JSON list of names under `names`. */}}
{{- define "lead.sharedProfiles" -}}
{{- $names := list }}
{{- if has .Release.Namespace (include "lead.runNamespaces" . | fromJson).names }}
{{- range $name, $profile := .Values.storage.profiles }}
{{- if and $profile.existingSecret (not $profile.operatorSecret) }}{{ $names = append $names $name }}{{ end }}
{{- end }}
{{- end }}
{{- dict "names" $names | toJson }}
{{- end }}

{{/* Profiles on the embedded MinIO, as a JSON list of names under `names`. */}}
{{- define "lead.embeddedProfiles" -}}
{{- $names := list }}
{{- range $name, $profile := .Values.storage.profiles }}
{{- if not $profile.endpoint }}{{ $names = append $names $name }}{{ end }}
{{- end }}
{{- dict "names" $names | toJson }}
{{- end }}

{{/*
Credentials of the embedded MinIO as a JSON dict of base64 values: those of the Secret in the cluster where there is one,
new random ones otherwise. They are drawn once a rendering and kept in .Values, because each include would draw others.
*/}}
{{- define "lead.minioCredentials" -}}
{{- if not (hasKey .Values "drawnCredentials") }}
{{- $stored := (lookup "v1" "Secret" .Release.Namespace (printf "%s-minio-credentials" (include "lead.fullname" .))).data | default dict }}
{{- /* Names of keys are drawn too: nobody who knows the release knows one. */}}
{{- $wanted := dict "root-user" (printf "lead-root-%s" (randAlphaNum 12 | lower)) "root-password" (randAlphaNum 40) "tokens-client-secret" (randAlphaNum 40) }}
{{- range $name := (include "lead.embeddedProfiles" . | fromJson).names }}
{{- $_ := set $wanted (printf "%s.operator-access-key" $name) (printf "lead-operator-%s-%s" $name (randAlphaNum 12 | lower)) }}
{{- $_ := set $wanted (printf "%s.operator-secret-key" $name) (randAlphaNum 40) }}
{{- range $namespace := (include "lead.profileNamespaces" (dict "root" $ "profile" (get $.Values.storage.profiles $name)) | fromJson).names }}
{{- range $kind := list "data" "view" }}
{{- $_ := set $wanted (printf "%s.%s.%s-access-key" $name $namespace $kind) (printf "lead-%s-%s.%s.%s" $kind $name $namespace (randAlphaNum 12 | lower)) }}
{{- $_ := set $wanted (printf "%s.%s.%s-secret-key" $name $namespace $kind) (randAlphaNum 40) }}
{{- end }}
{{- end }}
{{- end }}
{{- $drawn := dict }}
{{- range $key, $value := $wanted }}
{{- $_ := set $drawn $key (get $stored $key | default ($value | b64enc)) }}
{{- end }}
{{- $_ := set .Values "drawnCredentials" $drawn }}
{{- end }}
{{- .Values.drawnCredentials | toJson }}
{{- end }}

{{/*
Authority and certificate of the embedded MinIO as a JSON dict: `authority` and `server` (base64 data of two Secrets) and
`bundle` (text that clients trust). The authority is kept; a rendering that finds it signs a new server certificate by it.
Another minio.tls.generation than the stored one changes the authority in three upgrades, so that clients never meet one
that they do not know: the first adds the next authority to the bundle, the second signs by it, the third drops the old.
*/}}
{{- define "lead.minioTls" -}}
{{- if not (hasKey .Values "drawnTls") }}
{{- $stored := (lookup "v1" "Secret" .Release.Namespace (printf "%s-minio-ca" (include "lead.fullname" .))).data | default dict }}
{{- $generation := toString .Values.minio.tls.generation }}
{{- $authority := dict }}
{{- if hasKey $stored "next.crt" }}
{{- $authority = dict "ca.crt" (get $stored "next.crt") "ca.key" (get $stored "next.key") "generation" (get $stored "next-generation") "previous.crt" (get $stored "ca.crt") }}
{{- else if hasKey $stored "ca.crt" }}
{{- $authority = dict "ca.crt" (get $stored "ca.crt") "ca.key" (get $stored "ca.key") "generation" (get $stored "generation") }}
{{- if ne (b64dec (get $stored "generation")) $generation }}
{{- $next := genCAWithKey (printf "%s-minio-ca-%s" (include "lead.fullname" .) $generation) 3650 (genPrivateKey "ecdsa") }}
{{- $_ := set $authority "next.crt" (b64enc $next.Cert) }}
{{- $_ := set $authority "next.key" (b64enc $next.Key) }}
{{- $_ := set $authority "next-generation" (b64enc $generation) }}
{{- end }}
{{- else }}
{{- $first := genCAWithKey (printf "%s-minio-ca-%s" (include "lead.fullname" .) $generation) 3650 (genPrivateKey "ecdsa") }}
{{- $authority = dict "ca.crt" (b64enc $first.Cert) "ca.key" (b64enc $first.Key) "generation" (b64enc $generation) }}
{{- end }}
{{- $host := printf "%s-minio" (include "lead.fullname" .) }}
{{- $inNamespace := printf "%s.%s" $host .Release.Namespace }}
{{- $names := list $host $inNamespace (printf "%s.svc" $inNamespace) (printf "%s.svc.cluster.local" $inNamespace) "localhost" }}
{{- $signer := buildCustomCert (get $authority "ca.crt") (get $authority "ca.key") }}
{{- $server := genSignedCertWithKey $host (list "127.0.0.1" "::1") $names 1095 $signer (genPrivateKey "ecdsa") }}
{{- $bundle := list }}
{{- range list "ca.crt" "next.crt" "previous.crt" }}
{{- with get $authority . }}{{ $bundle = append $bundle (b64dec .) }}{{ end }}
{{- end }}
{{- $_ := set .Values "drawnTls" (dict "authority" $authority "server" (dict "tls.crt" (b64enc $server.Cert) "tls.key" (b64enc $server.Key)) "bundle" (join "" $bundle)) }}
{{- end }}
{{- .Values.drawnTls | toJson }}
{{- end }}

{{/* Names of the policies of the role of all pods: ROLE_POLICIES of lead_operator/cli/store_policies.py. */}}
{{- define "lead.rolePolicies" -}}
{{- $names := list }}
{{- range until 16 }}{{ $names = append $names (printf "lead-pods-%02d" .) }}{{ end }}
{{- join "," $names }}
{{- end }}

{{/* MinIO's name of the role of all pods: made of its client ID, lead-store. */}}
{{- define "lead.roleArn" -}}
arn:minio:iam:::role/XBscWNnagoxN6LV8WeeaH_fOm9s
{{- end }}

{{/* What the operator may do where runs live; nothing on Secrets. */}}
{{- define "lead.operatorRules" -}}
- apiGroups: [lead.dev]
  resources: [trainingruns, datasetcaches]
  verbs: [get, list, watch]
- apiGroups: [lead.dev]
  resources: [trainingruns]  # ttlSecondsAfterFinished
  verbs: [delete]
- apiGroups: [lead.dev]
  resources: [datasetcaches]  # the finalizer of those that take their data with them
  verbs: [patch]
- apiGroups: [lead.dev]
  resources: [trainingruns/status, datasetcaches/status]
  verbs: [patch, update]  # update: replaces a status in which somebody else has written fields
- apiGroups: [lead.dev]
  resources: [trainingruns/finalizers, datasetcaches/finalizers]  # owner references that block deletion
  verbs: [update]
- apiGroups: [""]
  resources: [pods, services, persistentvolumeclaims]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods]  # the time of the newest checkpoint, for Volcano
  verbs: [patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* Ports of the stores outside the release, as a JSON list under `ports`. */}}
{{- define "lead.storePorts" -}}
{{- $ports := dict }}
{{- range $name, $profile := .Values.storage.profiles }}
{{- if $profile.endpoint }}
{{- $port := regexFind ":[0-9]+$" $profile.endpoint | trimPrefix ":" | default (ternary "443" "80" ($profile.secure | default false)) }}
{{- $_ := set $ports $port true }}
{{- end }}
{{- end }}
{{- dict "ports" (keys $ports | sortAlpha) | toJson }}
{{- end }}

{{/* Egress rules to the stores: the embedded one by its pods, others by their ports, because a policy names no hosts. */}}
{{- define "lead.storeEgress" -}}
{{- if .Values.minio.enabled }}
- to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .Release.Namespace }}}}
      podSelector:
        matchLabels: {{- include "lead.selector" (dict "root" . "component" "minio") | nindent 10 }}
  ports:
    - {protocol: TCP, port: 9000}
{{- end }}
{{- range $port := (include "lead.storePorts" . | fromJson).ports }}
- to:
    {{- range $.Values.networkPolicy.storeCidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- else }}
    - ipBlock: {cidr: 0.0.0.0/0, except: [169.254.0.0/16]}  # metadata services stay out
    - ipBlock: {cidr: "::/0", except: ["fe80::/10"]}
    {{- end }}
  ports:
    - {protocol: TCP, port: {{ $port }}}
{{- end }}
{{- end }}
