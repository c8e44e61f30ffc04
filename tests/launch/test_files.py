"""Tests of the files for clusters in launch/ and docker/."""

import shlex
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LAUNCH, DOCKER = REPOSITORY / "launch", REPOSITORY / "docker"
# Of the type MPIJobSpec, v2beta1, as Kubeflow publishes it.
JOB_FIELDS = {
    "slotsPerWorker": int, "runPolicy": dict, "mpiReplicaSpecs": dict, "sshAuthMountPath": str, "waitForWorkers": bool,
    "mpiImplementation": str,
}  # fmt: skip
POLICY_FIELDS = {
    "cleanPodPolicy": str, "ttlSecondsAfterFinished": int, "activeDeadlineSeconds": int, "backoffLimit": int,
    "schedulingPolicy": dict, "suspend": bool,
}  # fmt: skip
MODULES = {f"xmc_tf.{path.stem}" for path in (REPOSITORY / "xmc_tf").glob("*.py")} | {"xmc_tf.linear.train"}


@pytest.mark.parametrize("path", sorted((LAUNCH / "kubernetes").glob("*.yaml")), ids=lambda path: path.stem)
def test_mpi_jobs_have_slots_for_their_ranks(path):
    job = yaml.safe_load(path.read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    launcher, worker = (job["spec"]["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
    assert launcher["restartPolicy"] == "OnFailure"  # the same command resumes
    [container] = launcher["template"]["spec"]["containers"]
    command = container["command"]
    assert int(command[command.index("-n") + 1]) == worker["replicas"] * job["spec"]["slotsPerWorker"]
    assert all(isinstance(word, str) for word in command + container["args"])
    assert container["args"][:2] == ["python", "-m"]
    assert container["args"][2] in MODULES
    for role in (launcher, worker):
        spec = role["template"]["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        [container] = spec["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        # Another user would not find the job's key at the mount path.
        assert spec["securityContext"]["runAsUser"] == 1000
    tag = container["image"].rpartition(":")[2]
    assert (DOCKER / f"train-{tag}.Dockerfile").is_file()


@pytest.mark.parametrize("path", sorted((LAUNCH / "kubernetes").glob("*.yaml")), ids=lambda path: path.stem)
def test_mpi_jobs_follow_the_published_schemas(path):
    spec = yaml.safe_load(path.read_text())["spec"]
    for fields, found in ((JOB_FIELDS, spec), (POLICY_FIELDS, spec["runPolicy"])):
        assert {name: type(value) for name, value in found.items()}.items() <= fields.items()
    assert spec["mpiReplicaSpecs"].keys() == {"Launcher", "Worker"}
    for role in spec["mpiReplicaSpecs"].values():
        assert role.keys() <= {"replicas", "restartPolicy", "template"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rank"}, "spec": role["template"]["spec"]}
        kubernetes_validate.validate(pod, "1.34", strict=True)
        pod["spec"]["containers"][0]["workdir"] = "/data"
        with pytest.raises(kubernetes_validate.ValidationError, match="workdir"):
            kubernetes_validate.validate(pod, "1.34", strict=True)


@pytest.mark.parametrize("path", sorted(DOCKER.glob("*.Dockerfile")), ids=lambda path: path.stem)
def test_images_have_no_known_mistakes(path):
    found = subprocess.run([BIN / "hadolint", path], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("path", sorted(DOCKER.glob("*.Dockerfile")), ids=lambda path: path.stem)
def test_images_copy_existing_files(path):
    copied = [
        [word for word in shlex.split(line)[1:-1] if not word.startswith("--")]
        for line in path.read_text().splitlines()
        if line.startswith("COPY") and "--from" not in line
    ]
    assert copied
    for name in (name for names in copied for name in names):
        assert (REPOSITORY / name).exists(), name


@pytest.mark.parametrize(
    "path", [*LAUNCH.rglob("*.sbatch"), *LAUNCH.rglob("*.sh"), DOCKER / "ssh.sh"], ids=lambda path: path.name
)
def test_scripts_parse(path):
    shell = path.read_text().splitlines()[0].removeprefix("#!").strip()
    subprocess.run([shell, "-n", path], check=True, timeout=30)
    assert path.stat().st_mode & 0o111
