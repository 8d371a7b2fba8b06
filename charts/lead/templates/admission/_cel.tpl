{{/* Parts of the admission policies: closed lists as CEL, and messages with field, found, allowed, and value. */}}

{{- define "lead.admission.served" -}}
{{- if and .Values.admissionPolicies.enabled (or (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version)) }}yes{{ end }}
{{- end }}

{{/* The operator's name to the API server. */}}
{{- define "lead.admission.operator" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "lead.fullname" . }}-operator
{{- end }}

{{/* Binds a policy to the namespaces for runs. */}}
{{- define "lead.admission.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "lead.labels" (dict "root" .root "component" "admission") | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
  {{- if not .root.Values.runs.clusterWide }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        - {key: kubernetes.io/metadata.name, operator: In, values: {{ (include "lead.runNamespaces" .root | fromJson).names | toRawJson }}}
  {{- end }}
{{- end }}

{{/* Whether the name that a CEL expression yields is in a list whose entries may end in *. */}}
{{- define "lead.cel.admits" -}}
{{- $exact := list }}{{ $beginnings := list }}
{{- range .list }}
{{- if hasSuffix "*" . }}{{ $beginnings = append $beginnings (trimSuffix "*" .) }}{{ else }}{{ $exact = append $exact . }}{{ end }}
{{- end -}}
({{ .name }} in {{ $exact | toRawJson }} || {{ $beginnings | toRawJson }}.exists(b, {{ .name }}.startsWith(b)))
{{- end }}

{{/* A rule that names the first of `names`, a CEL list, that the list in `policy.<value>` does not hold. */}}
{{- define "lead.admission.listed" -}}
{{- $list := get .root.Values.policy .value }}
{{- $beyond := printf "%s.filter(n, n != '' && !%s)" .names (include "lead.cel.admits" (dict "name" "n" "list" $list)) }}
{{- $message := printf "'%s is ' + %s[0] + %s" .field $beyond (printf ", allowed is %s; an administrator sets policy.%s in the chart's values" ($list | join ", " | default "none") .value | toRawJson) }}
- expression: {{ printf "size(%s) == 0" $beyond | toRawJson }}
  messageExpression: {{ $message | toRawJson }}
{{- end }}

{{/* A rule that names a number above `policy.<value>`. */}}
{{- define "lead.admission.bounded" -}}
{{- $most := int (get .root.Values.policy .value) }}
- expression: {{ printf "%s <= %d" .number $most | toRawJson }}
  messageExpression: {{ printf "'%s is ' + string(%s) + %s" .field .number (printf ", allowed is at most %d; an administrator sets policy.%s in the chart's values" $most .value | toRawJson) | toRawJson }}
{{- end }}

{{/* The rules that pods of runs and of builds share: `path` to their settings and `resources` to their resources. */}}
{{- define "lead.admission.pods" -}}
{{- include "lead.admission.listed" (dict "root" .root "field" (printf "a key of %s.nodeSelector" .path) "names" (printf "%s.nodeSelector.map(k, k)" .object) "value" "allowedNodeSelectors") }}
{{ include "lead.admission.listed" (dict "root" .root "field" (printf "a key of %s.tolerations" .path) "names" (printf "%s.tolerations.map(t, t.key)" .object) "value" "allowedTolerations") }}
{{ include "lead.admission.listed" (dict "root" .root "field" (printf "a resource of %s" .resourcesPath) "names" "variables.resources.map(k, k)" "value" "allowedResources") }}
{{ include "lead.admission.bounded" (dict "root" .root "field" (printf "devices of %s" .resourcesPath) "number" "variables.devices" "value" "maxGpusPerPod") }}
{{- end }}

{{/* How large the free mappings of a spec may be; `text` is what CEL writes of them. */}}
{{- define "lead.admission.config" -}}
{{- $bounds := .Values.admissionPolicies.config }}
- expression: {{ printf "size(bytes(variables.config)) <= %d" (int $bounds.maxBytes) | toRawJson }}
  messageExpression: {{ printf "'spec.config is ' + string(size(bytes(variables.config))) + ' bytes long, with those of its stages, allowed is at most %d; move large values into the preset or the dataset; an administrator sets admissionPolicies.config.maxBytes in the chart' + \"'s values\"" (int $bounds.maxBytes) | toRawJson }}
- expression: {{ printf "size(bytes(variables.config)) > %d || size(variables.config.split('{')) + size(variables.config.split('[')) - 2 <= %d" (int $bounds.maxBytes) (int $bounds.maxNested) | toRawJson }}
  messageExpression: {{ printf "'spec.config has ' + string(size(variables.config.split('{')) + size(variables.config.split('[')) - 2) + ' mappings and lists, with those of its stages, allowed is at most %d; an administrator sets admissionPolicies.config.maxNested in the chart' + \"'s values\"" (int $bounds.maxNested) | toRawJson }}
{{- end }}

{{/* With clusterWide the release's own namespace cannot hold runs, unless the values allow it. */}}
{{- define "lead.admission.namespace" -}}
{{- range (include "lead.refusedNamespaces" . | fromJson).names }}
- expression: request.namespace != {{ . | quote }}
  messageExpression: "'metadata.namespace is ' + request.namespace + \", allowed is any namespace for runs: it is the operator's own; an administrator sets runs.allowInReleaseNamespace in the chart's values\""
{{- end }}
{{- end }}
