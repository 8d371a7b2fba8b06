// Pins the CRDs of the Prometheus operator, to which the chart's ServiceMonitor and PrometheusRule are applied.
module lead.dev/local-cluster/prometheus-operator

go 1.24.0

require github.com/prometheus-operator/prometheus-operator v0.78.2
