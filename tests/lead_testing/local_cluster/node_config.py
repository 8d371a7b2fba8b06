"""The configuration files of the node's programs, as text; pure, called by `parts`.

Each odd setting has its reason beside it: most were found by a program that refused to start.
"""

import json
from pathlib import Path

from lead_testing.local_cluster import addresses as at
from lead_testing.local_cluster.packages import CNI_FOLDER
from lead_testing.local_cluster.pki import Authority


def kubelet_config(state: Path, keys: Authority) -> str:
    """Builds the kubelet's configuration (JSON, which is YAML)."""
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": at.NODE_ADDRESS,
            "port": at.KUBELET_PORT,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": at.KUBELET_HEALTH_PORT,
            "tlsCertFile": str(keys.certificate("kubelet")),
            "tlsPrivateKeyFile": str(keys.key("kubelet")),
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(keys.certificate("ca"))}},
            "containerRuntimeEndpoint": f"unix://{at.CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,  # machines with the old hierarchy still run
            "failSwapOn": False,
            "oomScoreAdj": 0,  # lowering it takes CAP_SYS_RESOURCE, which a machine that is a container lacks
            "clusterDomain": at.CLUSTER_DOMAIN,
            "clusterDNS": [at.NODE_ADDRESS],
            "resolvConf": "",  # pods resolve the cluster's names alone
            "podLogsDir": str(state / "pod-logs"),
            "volumePluginDir": str(state / "volume-plugins"),
            "imageGCHighThresholdPercent": 100,  # a full disk of the user's must not throw our images away
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }
    )


def containerd_config(root: Path, pause_image: str) -> str:
    """Builds containerd's configuration: folders and socket of its own, so that it disturbs no other containerd."""
    return f'''version = 2
root = "{root}"
state = "{at.RUN_DIR}/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{at.CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{at.RUN_DIR}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_FOLDER}"
  conf_dir = "{at.RUN_DIR}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  discard_unpacked_layers = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "{at.RUN_DIR}/registries"
'''


def registry_host_config() -> str:
    """Tells containerd that the loopback registry speaks plain HTTP."""
    return f'server = "http://{at.REGISTRY}"\n\n[host."http://{at.REGISTRY}"]\n  capabilities = ["pull", "resolve"]\n'


def cni_config() -> str:
    """Builds the pod network: one bridge, addresses from a folder that ends with the cluster."""
    bridge = {
        "type": "bridge",
        "bridge": at.POD_BRIDGE,
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(at.RUN_DIR / "pod-addresses"),
            "ranges": [[{"subnet": at.POD_RANGE}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return _json({"cniVersion": "0.4.0", "name": "lead", "plugins": [bridge, portmap]})


def corefile(kubeconfig: Path) -> str:
    """Builds CoreDNS's configuration, bound to the node's address so that it meets no other resolver."""
    return f""". {{
    bind {at.NODE_ADDRESS}
    errors
    health {at.NODE_ADDRESS}:{at.DNS_HEALTH_PORT}
    cache 5
    kubernetes {at.CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 2
    }}
}}
"""


def registry_config(storage: Path) -> str:
    """Builds the loopback registry's configuration."""
    return _json(
        {
            "version": 0.1,
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
            "http": {"addr": at.REGISTRY},
        }
    )


def _json(document: object) -> str:
    return json.dumps(document, indent=1) + "\n"
