{{/* Names, labels and the security contexts that every pod template of this chart uses. */}}

{{- define "lead.labels" -}}
app.kubernetes.io/name: lead
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .component }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "lead.selector" -}}
app.kubernetes.io/name: lead
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "lead.image" -}}
{{ .repository }}:{{ .tag }}
{{- end }}

{{/* What the restricted Pod Security Standard asks of a pod. 65532 is the user of all images. */}}
{{- define "lead.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
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

{{/* host:port of a profile's store. */}}
{{- define "lead.endpoint" -}}
{{- if .profile.endpoint }}{{ .profile.endpoint }}{{ else }}{{ .root.Release.Name }}-minio.{{ .root.Release.Namespace }}.svc:9000{{ end }}
{{- end }}

{{/* Name of the Secret with the credentials that pods mount. */}}
{{- define "lead.secretName" -}}
{{- .profile.existingSecret | default (printf "lead-s3-%s" .name) }}
{{- end }}

{{/* Name of the Secret with the operator's own credentials, in the release's namespace. */}}
{{- define "lead.operatorSecretName" -}}
{{- .profile.operatorSecret | default .profile.existingSecret | default (printf "%s-operator-s3-%s" .root.Release.Name .name) }}
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
{{- $stored := (lookup "v1" "Secret" .Release.Namespace (printf "%s-minio-credentials" .Release.Name)).data | default dict }}
{{- $wanted := dict "root-user" "lead-root" "root-password" (randAlphaNum 40) }}
{{- range $name := (include "lead.embeddedProfiles" . | fromJson).names }}
{{- range $user := list "trainer" "operator" }}
{{- $_ := set $wanted (printf "%s.%s-access-key" $name $user) (printf "lead-%s-%s" $user $name) }}
{{- $_ := set $wanted (printf "%s.%s-secret-key" $name $user) (randAlphaNum 40) }}
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
  verbs: [patch]
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

{{/* Egress rules to the stores: the embedded one by its pods, others by their ports, because a policy names no hosts. */}}
{{- define "lead.storeEgress" -}}
{{- $ports := dict }}
{{- range $name, $profile := .Values.storage.profiles }}
{{- if $profile.endpoint }}
{{- $port := regexFind ":[0-9]+$" $profile.endpoint | trimPrefix ":" | default (ternary "443" "80" ($profile.secure | default false)) }}
{{- $_ := set $ports $port true }}
{{- end }}
{{- end }}
{{- if .Values.minio.enabled }}
- to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .Release.Namespace }}}}
      podSelector:
        matchLabels: {{- include "lead.selector" (dict "root" . "component" "minio") | nindent 10 }}
  ports:
    - {protocol: TCP, port: 9000}
{{- end }}
{{- range $port := keys $ports | sortAlpha }}
- to:
    - ipBlock: {cidr: 0.0.0.0/0, except: [169.254.0.0/16]}  # metadata services stay out
    - ipBlock: {cidr: "::/0", except: ["fe80::/10"]}
  ports:
    - {protocol: TCP, port: {{ $port }}}
{{- end }}
{{- end }}
