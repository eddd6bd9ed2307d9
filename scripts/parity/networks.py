#!/usr/bin/env python3
"""Compare networks that towers reads from ONNX files with PyTorch's, and print the tables of docs/results/networks.md.

Usage: PYTHON_WITH_THE_PACKAGES scripts/parity/networks.py run BUILD RECORDS [--most N] [NAME]...   one process a network; appends to RECORDS
       ... scripts/parity/networks.py run BUILD RECORDS --guide [NAME]...     only as the line of docs/guide/your_network.md exports them; logits
       ... scripts/parity/networks.py guide RECORDS docs/results/networks.md  the section of these anew
       ... scripts/parity/networks.py page RECORDS > docs/results/networks.md
       ... scripts/parity/networks.py fill RECORDS docs/results/networks.md   only the rows of these networks anew
       ... scripts/parity/networks.py empty docs/results/networks.md          networks whose gradients were not measured

NAME is an architecture of torchvision, or one of timm behind "timm:"; without names it is every convolutional classifier of torchvision and
the timm architectures of the list below, one or two of each family. A network is made with random weights and random statistics of its
batch norms, exported, read, and run on two images; PyTorch in float64 is the truth, and PyTorch's own float32 the measure: a network `loads`
if its error is at most ten times PyTorch's, or 2e-6 of the largest logit. Else it `differs`; it is `refused` with the reasons that towers
gives; or it is `not exported`, where no form of PyTorch's exporters makes a file; or `not measured`, if its process ends or takes too
long. The forms are tried in the order of FORMS, until one loads or differs. Each record has the versions of the packages; a page is made of
records of the same versions alone. Networks of N parameters or more are not trained; without --most these are 50,000,000."""
import copy
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import warnings

CLASSES, IMAGES, SECONDS = 10, 2, 300
STEPS, BATCH, RATE = 3, 4, 0.01
TRAINED_MOST = 50_000_000  # parameters of networks that are trained, too
SIDES = {"alexnet": 224, "vgg": 224, "inception_v3": 128, "timm:inception": 160, "timm:vgg": 224, "timm:repvgg": 64}
VITS = ("vit_", "swin_", "maxvit")  # attention
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FORMS = ("script", "dynamo unoptimized", "dynamo")
GUIDE, GUIDE_FORM = "## By the guide's own line", "dynamo unoptimized"
TIMM = """resnet18 resnet26d resnet50 seresnet50 ecaresnet26t resnext50_32x4d seresnext26d_32x4d skresnet18 resnest14d res2net50_26w_4s
res2next50 gcresnet50t resnetblur50 resnetaa50 resnetv2_50 resnetv2_50x1_bit wide_resnet50_2 resnet33ts eca_resnet33ts gcresnet33ts
seresnet33ts resnext26ts lambda_resnet26t densenet121 densenetblur121d dpn48b dpn68 dla34 dla46_c dla60_res2net hrnet_w18_small vgg11
vgg11_bn inception_v3 inception_v4 inception_resnet_v2 inception_next_tiny xception41 xception65p legacy_xception nasnetalarge
pnasnet5large mobilenetv1_100 mobilenetv2_050 mobilenetv2_100 mobilenetv3_small_050 mobilenetv3_large_100 mobilenetv3_rw
mobilenetv4_conv_small mobilenetv4_conv_medium mobilenetv4_hybrid_medium mnasnet_small mnasnet_100 semnasnet_075 spnasnet_100 fbnetc_100 fbnetv3_b
ghostnet_100 ghostnetv2_100 hardcorenas_a lcnet_050 lcnet_100 tinynet_a tinynet_e mixnet_s mixnet_m efficientnet_b0 efficientnet_b1
efficientnet_es efficientnet_lite0 efficientnetv2_rw_t efficientnetv2_rw_s tf_efficientnet_b0 tf_efficientnet_lite0 tf_efficientnetv2_b0
tf_efficientnetv2_s tf_mixnet_s tf_mobilenetv3_small_100 tf_mobilenetv3_small_minimal_100 tf_mobilenetv3_large_075 gc_efficientnetv2_rw_t rexnet_100 rexnetr_100
regnetx_002 regnetx_008 regnety_002 regnety_008 regnetz_005 regnetz_b16 regnetv_040 cspresnet50 cspresnext50 cspdarknet53 darknet17
darknet53 darknetaa53 sedarknet21 cs3darknet_s cs3darknet_m cs3darknet_focus_s cs3sedarknet_l cs3edgenet_x cs3se_edgenet_x repvgg_a0
repvgg_b0 repvgg_d2se mobileone_s0 mobileone_s1 repghostnet_050 repvit_m0_9 fastvit_t8 convnext_atto convnext_atto_ols convnext_femto
convnext_pico convnext_nano convnext_tiny convnextv2_atto convnextv2_femto convnextv2_nano convmixer_768_32 convmixer_1024_20_ks9_p14
edgenext_xx_small edgenext_small fasternet_t0 fasternet_t1 focalnet_tiny_srf hgnet_tiny hgnetv2_b0 hgnetv2_b1 hgnetv2_b4 inception_next_atto
levit_128s selecsls42b selecsls60 starnet_s1 starnet_s2 starnet_s3 tresnet_m vovnet39a ese_vovnet19b_slim ese_vovnet19b_dw
ese_vovnet39b eca_vovnet39b vgg13 xcit_nano_12_p16_224 poolformer_s12 poolformerv2_s12 rdnet_tiny mambaout_femto mambaout_kobe nf_resnet26
nf_regnet_b0 nfnet_l0 eca_nfnet_l0 dm_nfnet_f0 nf_ecaresnet26 nf_seresnet26 bat_resnext26ts halonet26t botnet26t_256 sehalonet33ts
visformer_tiny lamhalobotnet50ts_256 haloregnetz_b ghostnetv3_050 shvit_s1 swiftformer_xs efficientformer_l1 efficientvit_b0 mobilevit_xxs
csatv2 tiny_vit_5m_224 nextvit_small davit_tiny""".split()


# ---- one network

def side_of(name):
    return next((side for begin, side in SIDES.items() if name.startswith(begin)), 64)


def network_of(name):
    import torch
    import torchvision
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if name.startswith("timm:"):
        import timm
        network = timm.create_model(name[5:], num_classes=CLASSES)
    else:
        plain = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
        network = getattr(torchvision.models, name)(num_classes=CLASSES, **plain)
    random = torch.Generator().manual_seed(1)
    for module in network.modules():
        if getattr(module, "running_var", None) is None:
            continue
        module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=random) * 0.1)
        module.running_var.copy_(torch.rand(module.running_var.shape, generator=random) + 0.5)
        if module.weight is not None:
            module.weight.data.copy_(torch.rand(module.weight.shape, generator=random) * 0.5 + 0.5)
            module.bias.data.copy_(torch.randn(module.bias.shape, generator=random) * 0.1)
    return network.eval()


def exported(network, side, form, path):
    """False: this exporter makes no file of it."""
    import torch
    images = torch.rand(IMAGES, 3, side, side)
    try:
        if form == "script":
            torch.onnx.export(network, (images,), path, dynamo=False, do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE,
                              input_names=["image"], output_names=["logits"], dynamic_axes={"image": {0: "n"}, "logits": {0: "n"}})
        else:
            torch.onnx.export(network, (images,), dynamo=True, optimize=form == "dynamo", verbose=False, input_names=["image"], output_names=["logits"],
                              dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)).save(path)
    except Exception:  # of any kind: the exporters raise many
        return False
    return True


def compared(build, network, side, path, work):
    """What towers makes of the file: verdict, and its error beside PyTorch's; or the reasons."""
    import numpy
    import torch
    said = subprocess.run([f"{build}/tests/logits_driver", path, "0", "0", "", "-", str(IMAGES), f"{work}/out"], capture_output=True, text=True)
    if said.returncode:
        lines = re.findall(r"^  (?!via )(\w+) .*?: (.*)", said.stderr, re.M)
        reasons = sorted({f"{kind}: {why}" for kind, why in lines}) or [said.stderr.split("\n")[0].split("': ")[-1]]
        return {"verdict": "refused", "reasons": reasons}
    pixels = numpy.fromfile(f"{work}/out.pixels", numpy.uint8).reshape(IMAGES, side, side, 3)
    ours = numpy.fromfile(f"{work}/out.logits", numpy.float32).reshape(IMAGES, CLASSES).astype(numpy.float64)
    mean, std = numpy.float32(MEAN), numpy.float32(STD)
    images = torch.from_numpy(((pixels.astype(numpy.float32) / 255 - mean) / std).transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        single = network(images).numpy().astype(numpy.float64)
        truth = network.double()(images.double()).numpy()
    largest, error, theirs = abs(truth).max(), abs(ours - truth).max(), abs(single - truth).max()
    loads = error <= max(10 * theirs, 2e-6 * largest)
    return {"verdict": "loads" if loads else "differs", "error": error / largest, "torch": theirs / largest, "ops": len(said.stdout.split("\n")) - 1}


def steps_of(network, pixels, labels, dtype):
    """Gradients of the first step and parameters after the last, of SGD in training mode without dropout."""
    import torch
    network = copy.deepcopy(network).to(dtype).train()
    for module in network.modules():
        if "Drop" in type(module).__name__ or "StochasticDepth" in type(module).__name__:
            module.eval()
    optimizer, gradients = torch.optim.SGD(network.parameters(), lr=RATE), None
    mean, std = (torch.tensor(values, dtype=dtype).view(3, 1, 1) for values in (MEAN, STD))
    for batch, wanted in zip(pixels, labels):
        images = (torch.from_numpy(batch).permute(0, 3, 1, 2).to(dtype) / 255 - mean) / std
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images), torch.from_numpy(wanted).long()).backward()
        gradients = gradients or {name: p.grad.double().numpy().copy() for name, p in network.named_parameters() if p.grad is not None}
        optimizer.step()
    return gradients, {name: p.detach().double().numpy() for name, p in network.named_parameters() if name in gradients}


def distance(a, b, names):
    """|a - b| / |b| of all tensors together."""
    import numpy
    return float(numpy.sqrt(sum(((a[n].reshape(-1) - b[n].reshape(-1)) ** 2).sum() for n in names) / sum((b[n] ** 2).sum() for n in names)))


def trained(build, network, side, path, work):
    """Errors of gradients and of three steps, beside PyTorch's; nothing if the file has other parameters."""
    import numpy
    import torch
    from safetensors.numpy import load_file, save_file
    random = numpy.random.default_rng(0)
    pixels = random.integers(0, 256, (STEPS, BATCH, side, side, 3), numpy.uint8)
    labels = random.integers(0, CLASSES, (STEPS, BATCH), numpy.int32)
    save_file({"pixels": pixels, "labels": labels}, f"{work}/in.safetensors")
    said = subprocess.run([f"{build}/tests/fidelity_driver", f"model={path}", f"input={work}/in.safetensors", f"output={work}/steps.safetensors",
                           f"weights={work}/out.safetensors", f"lr={RATE}", "passes=0", "threads=1"], capture_output=True, text=True)
    if said.returncode:
        return {"reasons": [said.stderr.split("\n")[0]]}
    ours = {name: value.astype(numpy.float64) for name, value in load_file(f"{work}/steps.safetensors").items()}
    (g64, p64), (g32, p32) = (steps_of(network, pixels, labels, dtype) for dtype in (torch.float64, torch.float32))
    ours_g, ours_p = ({name: ours[f"{kind}.{name}"] for name in g64 if f"{kind}.{name}" in ours} for kind in ("grad", "after"))
    if ours_g.keys() != g64.keys():
        return {"reasons": [f"{len(g64.keys() - ours_g.keys())} parameters have other names or are constants in the file"]}
    found = {"gradient": distance(ours_g, g64, g64), "torch_gradient": distance(g32, g64, g64)}
    return found | {"steps": distance(ours_p, p64, g64), "torch_steps": distance(p32, p64, g64)}


def one(build, name, most, forms):
    warnings.filterwarnings("ignore")
    network, side = network_of(name), side_of(name)
    parameters = sum(p.numel() for p in network.parameters())
    found, before = {"verdict": "not exported"}, {}
    with tempfile.TemporaryDirectory() as work:
        for form in forms:
            if not exported(network, side, form, f"{work}/net.onnx"):
                continue
            if "reasons" in found:
                before[found["form"]] = found["reasons"]
            found = compared(build, network, side, f"{work}/net.onnx", work) | {"form": form}
            network.float()
            if found["verdict"] != "refused":
                break
        if found["verdict"] == "loads" and parameters < most:
            found |= trained(build, network, side, f"{work}/net.onnx", work)
    return {"name": name, "side": side, "parameters": parameters, "before": before} | found


# ---- all of them

def packages_of():
    import timm
    import torch
    import torchvision
    return ", ".join(f"{name} {package.__version__.split('+')[0]}" for name, package in (("PyTorch", torch), ("torchvision", torchvision), ("timm", timm)))


def torchvision_names():
    import torchvision
    names = torchvision.models.list_models(module=torchvision.models)
    return [name for name in names if not name.startswith(VITS)]


def run(build, records, names, most, forms):
    """Each in a process of its own, which begins with the packages read already."""
    packages, processes = packages_of(), multiprocessing.get_context("fork")
    for name in names or torchvision_names() + [f"timm:{name}" for name in TIMM]:
        answers = processes.SimpleQueue()
        process = processes.Process(target=lambda: answers.put(one(build, name, most, forms)))
        process.start()
        process.join(SECONDS)
        why = "took too long" if process.is_alive() else "its process ended"
        process.kill()
        record = answers.get() if not answers.empty() else {"name": name, "verdict": "not measured", "reasons": [why]}
        with open(records, "a") as to:
            to.write(json.dumps(record | {"packages": packages}) + "\n")
        print(record["name"], record["verdict"], record.get("form", ""), record.get("reasons", ""), flush=True)


# ---- the page

def row(r):
    pairs = [("error", "torch"), ("gradient", "torch_gradient"), ("steps", "torch_steps")]
    errors = " | ".join(f"{r[ours]:.0e} / {r[theirs]:.0e}" if ours in r else "" for ours, theirs in pairs)
    before = [f"as {form}: {'; '.join(reasons)}" for form, reasons in r.get("before", {}).items() if r["verdict"] != "refused"]
    why = "; ".join(before + r.get("reasons", [])).replace("|", "/")
    return f"| {r['name'].replace('timm:', '')} | {r['verdict']} | {errors} | {r.get('form', '') if r['verdict'] == 'loads' else ''} | {why} |"


def counted(verdicts):
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("loads", "refused", "differs", "not exported", "not measured"))


def table(title, records, names):
    said = counted([r["verdict"] for r in records])
    missing = sorted(set(names) - {r["name"] for r in records})
    rest = f" Not tried yet: {', '.join(missing).replace('timm:', '')}." if missing else ""
    return [f"## {title}", "", f"{len(records)} of {len(names)} architectures: {said}.{rest}", "", "| network | verdict | logits | gradients | three steps | exporter | why |", "|---|---|---|---|---|---|---|",
            *map(row, records), ""]


def page(path):
    records = {}
    for line in open(path):
        records[json.loads(line)["name"]] = json.loads(line)
    packages = {r["packages"] for r in records.values()}
    if len(packages) > 1:
        sys.exit(f"{path} has records of different packages, of which no page is made: {'; '.join(sorted(packages))}")
    own = [r for name, r in records.items() if not name.startswith("timm:")]
    others = [r for name, r in records.items() if name.startswith("timm:")]
    lines = ["# Networks from ONNX files", "", f"Written by `scripts/parity/networks.py` with {', '.join(packages)}; it says how each network is made, "
             "exported and compared. The networks are all convolutional classifiers of torchvision, and one or two of each family of timm. A network "
             "`loads` if the error of its logits is at most ten times PyTorch's, or 2e-6.", "",
             "Each error is given as that of towers / that of PyTorch's own float32, both from PyTorch's float64. Of logits it is the largest, as a part "
             "of the largest logit. Of gradients in training mode, and of the parameters after three steps of SGD, it is |a - b| / |b| of all of them "
             "together; what is empty was not measured, because two shared cores had no time for it. The exporter is the first form whose "
             "file is not refused, of `script` (TorchScript), `dynamo unoptimized` and `dynamo`; the last column has the reasons of a form that was "
             "refused before it, or those of a refused network's last form.", ""]
    print("\n".join(lines + table("torchvision", own, torchvision_names()) + table("timm", others, [f"timm:{name}" for name in TIMM])).rstrip())


def rows_of(lines):
    """{name: the number of its line} of a page."""
    found, prefix = {}, ""
    for at, line in enumerate(lines):
        if line == GUIDE:
            break
        prefix = "timm:" if line == "## timm" else prefix
        if line.startswith("| ") and not line.startswith("| network |"):
            found[prefix + line.split(" | ")[0][2:]] = at
    return found


def fill(records, page):
    lines = open(page).read().split("\n")
    rows = rows_of(lines)
    for line in open(records):
        record = json.loads(line)
        if record["packages"] not in lines[2] or record["name"] not in rows:
            sys.exit(f"{page} has no row of {record['name']} with {record['packages']}")
        lines[rows[record["name"]]] = row(record)
    for at, line in enumerate(lines):
        if " architectures: " in line:
            timm = "## timm" in lines[:at]
            verdicts = [lines[k].split(" | ")[1] for name, k in rows.items() if name.startswith("timm:") == timm]
            lines[at] = f"{line.split(': ')[0]}: {counted(verdicts)}.{line.split('.', 1)[1]}"
    with open(page, "w") as to:
        to.write("\n".join(lines))


def guide(records, page):
    """The section about one form of the exporter: how many load, and why the others do not."""
    found, text = {}, open(page).read()
    for line in open(records):
        record = json.loads(line)
        if record.get("form", GUIDE_FORM) != GUIDE_FORM or record["packages"] not in text.split("\n")[2]:
            sys.exit(f"{records}: {record['name']} is of another form or of other packages than {page}")
        found[record["name"]] = record
    verdicts, tables = [r["verdict"] for r in found.values()], text.split("\n")
    left = [at for name, at in rows_of(tables).items() if name not in found]
    refused = sum(tables[at].split(" | ")[1] == "refused" for at in left)
    rows = [f"| {r['name'].replace('timm:', 'timm: ')} | {r['verdict']} | {'; '.join(r.get('reasons', [])).replace('|', '/')} |"
            for _, r in sorted(found.items()) if r["verdict"] != "loads"]
    lines = [GUIDE, "", f"The tables above have the first form of the exporter whose file is read. The line of [the guide](../guide/your_network.md) is the form "
             f"`{GUIDE_FORM}` with the batch open, and each exporter writes what another one does not. Of {len(found)} networks that were tried with it and compared "
             f"by their logits: {counted(verdicts)}. The other {len(left)} of these tables were not tried with it yet, among them {refused} that "
             "the tables refuse." + (" Those that do not load:" if rows else "")]
    lines += ["", "| network | verdict | why |", "|---|---|---|", *rows] if rows else []
    with open(page, "w") as to:
        to.write(text.split(f"\n{GUIDE}\n")[0].rstrip() + "\n\n" + "\n".join(lines) + "\n")


def empty(page):
    lines = open(page).read().split("\n")
    print("\n".join(name for name, at in rows_of(lines).items() if lines[at].split(" | ")[1] == "loads" and "|  |  |" in lines[at]))


def arguments_run(build, records, *names):
    most, forms = TRAINED_MOST, FORMS
    if names[:1] == ("--guide",):
        most, forms, names = 0, (GUIDE_FORM,), names[1:]
    if names[:1] == ("--most",):
        most, names = int(names[1]), names[2:]
    run(build, records, names, most, forms)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) > 3:
        arguments_run(*sys.argv[2:])
    elif sys.argv[1:2] == ["fill"] and len(sys.argv) == 4:
        fill(sys.argv[2], sys.argv[3])
    elif sys.argv[1:2] == ["guide"] and len(sys.argv) == 4:
        guide(sys.argv[2], sys.argv[3])
    elif sys.argv[1:2] == ["empty"] and len(sys.argv) == 3:
        empty(sys.argv[2])
    elif sys.argv[1:2] == ["page"] and len(sys.argv) == 3:
        page(sys.argv[2])
    else:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        sys.exit(2)
