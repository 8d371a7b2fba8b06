"""Where a person corrects what a store refuses, or what keeps a pod from trusting it: the Secrets by name. Pure."""

from lead_operator.settings import StorageProfile

STORE_DENIED = "StoreDenied"  # the reason of a pod that ended so: a bad key, a missing right, an unknown authority
PROFILE_REMEDY = "ask the administrator to define it, or create this anew with one that is: the field is fixed"


def correct_pods_access(profile: StorageProfile | None, namespace: str, *, build: bool) -> str:
    """Returns what to correct for the pods of a namespace: training pods, or those of a build."""
    if profile is None:
        return "ask the administrator for the storage profile"
    if profile.credentials != "static":
        return f"ask the administrator what the store of profile {profile.name} lets pods of namespace {namespace} do"
    secret = (profile.build_secret_name if build else "") or profile.secret_name
    authority = f"ConfigMap {profile.ca_config_map}" if profile.ca_config_map else "it"
    return (
        f"correct the key in Secret {secret} of namespace {namespace}, what the store lets it do, or ca.crt in "
        f"{authority} (storage profile {profile.name})"
    )


def operators_key(profile: StorageProfile) -> str:
    """Returns where the operator's own key of a profile is, as a clause; empty where that is not known."""
    namespace, _, name = profile.operator_secret.rpartition("/")
    return f"; the operator's key is in Secret {name} of namespace {namespace}, with ca.crt if any" if namespace else ""
