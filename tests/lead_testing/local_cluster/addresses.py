"""Every name, address and port of the local cluster; constants, because there is one such cluster a machine.

No packet leaves the machine: the node's address is a /32 on a bridge without ports, and servers that only this machine
asks listen on loopback.
"""

from pathlib import Path

NODE_NAME = "lead"
NODE_LINK = "lead-node"
NODE_ADDRESS = "10.245.0.1"
POD_BRIDGE = "lead-pods"
POD_RANGE = "10.244.0.0/24"
SERVICE_RANGE = "10.246.0.0/16"
FIRST_SERVICE_ADDRESS = "10.246.0.1"
CLUSTER_DOMAIN = "cluster.local"

API_PORT = 6443
API_URL = f"https://{NODE_ADDRESS}:{API_PORT}"
ETCD_PORT = 23979
ETCD_PEER_PORT = 23980
CONTROLLER_MANAGER_PORT = 10257
SCHEDULER_PORT = 10259
KUBELET_PORT = 10250
KUBELET_HEALTH_PORT = 10248
PROXY_HEALTH_PORT = 10256
PROXY_METRICS_PORT = 10249
DNS_HEALTH_PORT = 18053
REGISTRY_PORT = 5050
REGISTRY = f"127.0.0.1:{REGISTRY_PORT}"

# Short paths: a Unix socket's name has at most 107 bytes, and LEAD_HOME may be long.
RUN_DIR = Path("/run/lead-cluster")
CONTAINERD_SOCKET = RUN_DIR / "containerd.sock"

VOLUME_CLASS = "lead-local"
VOLUME_COUNT = 16  # a release takes one, and what it has written stays until the cluster is started again
VOLUME_SIZE = "20Gi"
