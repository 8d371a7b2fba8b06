module lead.dev/local-cluster/pause

go 1.24.0
