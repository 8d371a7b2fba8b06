"""Names of the files and environment variables a pod gets; written by `lead_operator.objects`, read by `lead_trainer`.

A pod learns what to do from one mounted JSON file (`lead_protocol.job`), where the store is from the environment, and
who it is at the store from mounted files: nothing a user typed is ever part of an argv or of a shell line.
"""

JOB_FILE = "/etc/lead/job/job.json"  # downward API: annotation JOB_ANNOTATION of the pod, as a file
JOB_ANNOTATION = "lead.dev/job"
CREDENTIALS_DIR = (
    "/etc/lead/s3"  # Secret of the storage profile: files `access-key`, `secret-key`; none for webIdentity
)
CA_FILE = "/etc/lead/s3/ca.crt"  # optional: of the same Secret, or of the profile's ConfigMap
STORE_TOKEN_FILE = "/var/run/secrets/lead/store/token"  # webIdentity: a ServiceAccount token that only the STS takes
STORE_TOKEN_AUDIENCE = "lead-store"
STORE_TOKEN_LIFE_S = 3600  # the kubelet replaces it after 80 % of that
SESSION_CACHE_DIR = "/var/cache/lead"  # node-local volume of the session cache
SOURCE_DIR = "/var/lib/lead/source"  # the volume of a DatasetCache's source.claimName, read-only
SCRATCH_DIR = "/var/run/lead"  # emptyDir: event files, checkpoint staging
TERMINATION_LOG = "/dev/termination-log"

STORE_ENDPOINT = "LEAD_S3_ENDPOINT"  # host:port
STORE_SECURE = "LEAD_S3_SECURE"  # "true" | "false"
STORE_REGION = "LEAD_S3_REGION"
STORE_ADDRESSING = "LEAD_S3_ADDRESSING"  # "path" | "virtualHost"
STORE_URL = "LEAD_STORE_URL"  # s3://bucket/prefix, or file:///folder
STORAGE_PROFILE = "LEAD_STORAGE_PROFILE"  # its name, for messages
STORE_CREDENTIALS = "LEAD_S3_CREDENTIALS"  # "static" | "webIdentity" | "instanceRole"
STS_ENDPOINT = "LEAD_STS_ENDPOINT"  # URL; empty: the store's own endpoint
STS_ROLE_ARN = "LEAD_STS_ROLE_ARN"  # empty where the store asks for none

# Closed loop: what the command that drives in a simulator gets, in a pod and on a laptop alike.
CLOSED_LOOP_CHECKPOINT = "LEAD_CLOSED_LOOP_CHECKPOINT"  # folder: config.json and model_<epoch>_<seed>.pth
CLOSED_LOOP_RESULTS = "LEAD_CLOSED_LOOP_RESULTS"  # folder for the Leaderboard's JSON files and other artefacts
CLOSED_LOOP_ROUTES = "LEAD_CLOSED_LOOP_ROUTES"  # file or folder of routes; empty: the command's own
CLOSED_LOOP_SEED = "LEAD_CLOSED_LOOP_SEED"  # of the stage instance
CLOSED_LOOP_EPOCH = "LEAD_CLOSED_LOOP_EPOCH"
CLOSED_LOOP_ATTEMPT = "LEAD_CLOSED_LOOP_ATTEMPT"  # in a pod alone: its number within the run

# In a pod all containers have these variables; its two folders, and what the trainer's own two containers are to do.
CLOSED_LOOP_BUNDLE_DIR = "/var/run/lead-bundle"  # for the command read-only: checkpoint/, routes/
CLOSED_LOOP_CHECKPOINT_DIR = f"{CLOSED_LOOP_BUNDLE_DIR}/checkpoint"
CLOSED_LOOP_ROUTES_DIR = f"{CLOSED_LOOP_BUNDLE_DIR}/routes"
CLOSED_LOOP_RESULTS_DIR = "/var/run/lead-results"
CLOSED_LOOP_STEP = "LEAD_CLOSED_LOOP_STEP"  # "fetch" | "publish"
POD_UID = "LEAD_POD_UID"

# Rendezvous: the names torchrun reads, so that `torchrun -m …` in the same pod would find the same group.
NNODES = "PET_NNODES"
NODE_RANK = "PET_NODE_RANK"
NPROC_PER_NODE = "PET_NPROC_PER_NODE"
MASTER_ADDR = "PET_MASTER_ADDR"
MASTER_PORT = "PET_MASTER_PORT"
DEFAULT_MASTER_PORT = 29500
