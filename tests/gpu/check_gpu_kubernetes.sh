#!/usr/bin/env bash
# examples/kubernetes/trainjob.yaml: its fields are those of Kubeflow Trainer's API, and its command trains, as two programs that have
# only the variables that Kubeflow sets, over fake GPUs. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
python3 -c 'import yaml' 2>/dev/null || { echo "SKIPPED: no python3-yaml" >&2; exit 77; }
python3 - "$source_dir/examples/kubernetes/trainjob.yaml" >"$work/command" <<'CHECK' || complain "trainjob.yaml does not fit the API"
import shlex, sys, yaml

# pkg/apis/trainer/v1alpha1/trainjob_types.go of kubeflow/trainer, without what the example lacks; [..]: a list of such.
JOB = {
    "apiVersion": str, "kind": str, "metadata": {"name": str},
    "spec": {
        "runtimeRef": {"name": str, "apiGroup": str, "kind": str},
        "trainer": {"image": str, "command": [str], "args": [str], "env": [{"name": str, "value": str, "valueFrom": {"secretKeyRef": {"name": str, "key": str}}}],
                    "numNodes": int,
                    "resourcesPerNode": {"limits": dict, "requests": dict}, "numProcPerNode": int},
        "runtimePatches": [{"manager": str, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [
            {"name": str, "template": {"spec": {"template": {"spec": {
                "serviceAccountName": str, "nodeSelector": dict, "tolerations": [dict],
                "volumes": [{"name": str, "persistentVolumeClaim": {"claimName": str, "readOnly": bool}, "emptyDir": {"medium": str}}],
                "containers": [{"name": str, "volumeMounts": [
                    {"name": str, "mountPath": str, "subPath": str, "readOnly": bool}]}]}}}}}]}}}}],
    },
}

def fits(value, form, path):
    if isinstance(form, dict):
        assert isinstance(value, dict), f"{path} is no map"
        for key, inner in value.items():
            assert key in form, f"{path} has no field {key}"
            fits(inner, form[key], f"{path}.{key}")
    elif isinstance(form, list):
        assert isinstance(value, list), f"{path} is no list"
        for i, inner in enumerate(value):
            fits(inner, form[0], f"{path}[{i}]")
    else:
        assert type(value) is form, f"{path} is {value!r}"

job = yaml.safe_load(open(sys.argv[1]))
fits(job, JOB, "TrainJob")
assert job["apiVersion"] == "trainer.kubeflow.org/v1alpha1" and job["kind"] == "TrainJob"
spec = job["spec"]
pod = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
mounts = {m["mountPath"]: m["name"] for m in pod["containers"][0]["volumeMounts"]}
assert set(mounts.values()) <= {v["name"] for v in pod["volumes"]}, "a volume is missing"
command = spec["trainer"]["command"] + spec["trainer"]["args"]
assert {"/data", "/runs"} <= set(mounts) and {"/data", "/runs"} <= set(command), "the command uses other paths than are mounted"
assert {"name": mounts.get("/dev/shm"), "emptyDir": {"medium": "Memory"}} in pod["volumes"], "NCCL has 64 MB of shared memory (NVIDIA/nccl, issue 525)"
assert spec["trainer"]["numNodes"] == 2
assert [e["name"] for e in spec["trainer"]["env"]] == ["TOWERS_TOKEN"], "pods share no home, so they need a token"
print(shlex.join(command))
CHECK

gpu_towers=$(dirname "$towers")/tests/gpu/fake_cuda/towers_on_fake_gpus
((failures)) && check_end
[[ -x $gpu_towers ]] || { echo "SKIPPED: the fields are right, but this build has no CUDA backend to run the command with" >&2; exit 77; }
small_data "$work/data" 64 12 || exit $?
mkdir "$work/bin" "$work/runs"
ln -s "$gpu_towers" "$work/bin/towers"
export PATH=$work/bin:$PATH TMPDIR=$work ASAN_OPTIONS=detect_leaks=0 FAKE_GPUS=1 TOWERS_MAX_STEPS=2 TOWERS_BATCH_SIZE=1 TOWERS_WORKERS=1 TOWERS_EVAL_BATCH_SIZE=4 \
    TOWERS_REDUCE=ordered PET_NNODES=2 PET_NPROC_PER_NODE=auto PET_MASTER_ADDR=localhost PET_MASTER_PORT=$((17600 + RANDOM % 1500))
# A small network, and folders of this machine in place of those mounted.
command=$(sed "s|inception_v3|fashion_cnn|; s|/data|$work/data|; s|/runs|$work/runs|" "$work/command")
FAKE_GPUS=2 towers train fashion_cnn --data-path "$work/data" --output-dir "$work/runs" --experiment one >"$out" 2>"$err" </dev/null || complain "one program: $(tail -n 3 "$err")"
pids=()
for node in 0 1; do
    PET_NODE_RANK=$node NCCL_HOSTID=node$node TOWERS_TOKEN=of-the-secret XDG_CONFIG_HOME=/dev/null eval "$command" >"$work/out-$node" 2>"$work/err-$node" </dev/null &
    pids+=($!)
done
for node in 0 1; do wait "${pids[node]}" || complain "node $node: exit $?: $(tail -n 5 "$work/err-$node")"; done
cmp "$work/runs/one/last.safetensors" "$work/runs/inception/last.safetensors" || complain "two nodes: other weights than in one program"
grep -qF '; ranks 0..1 from Kubeflow Trainer (PET_NODE_RANK)' "$work/err-0" || complain "no line of ranks: $(cat "$work/err-0")"
check_end "the TrainJob has Kubeflow's fields, and its command trains"
