#!/usr/bin/env bash
# The line of docs/building.md that brings a CUDA toolkit from Python wheels and builds with it, run as it stands in a copy of the tree, with
# wheels that have the files' names and nothing in them and a compiler that compiles the probe: CMake takes the toolkit from where the
# script puts it. A second run leaves the toolkit as it is. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
command -v ninja >/dev/null || { echo "SKIPPED: the presets need ninja" >&2; exit 77; }
unset CUDAToolkit_ROOT CUDA_HOME CUDA_PATH CUDNN_ROOT CUDNN_PATH NCCL_ROOT NCCL_HOME
mkdir tree bin
(cd "$source_dir" && tar cf - --exclude='./build*' --exclude=./.git --exclude=./runs --exclude=./third_party .) | tar xf - -C tree

# python3 -m venv makes an environment whose pip installs three such wheels. cmake configures, and says what it would build.
cat >bin/python3 <<SH
#!$BASH
[[ "\$1 \$2" == "-m venv" ]] || exec $(command -v python3) "\$@"
mkdir -p "\$3/bin" "\$3/site"
printf '#!%s\necho %s\n' "$BASH" "\$3/site" >"\$3/bin/python"
printf '#!%s\nexec %s %s "\$@"\n' "$BASH" "$work/wheels.sh" "\$3/site" >"\$3/bin/pip"
chmod +x "\$3/bin/"*
SH
cat >wheels.sh <<SH
#!$BASH
site=\$1/nvidia
echo "\${*:2}" >>$work/pip-calls
[ ! -e "\$site" ] || exit 0 # as pip: it is there
mkdir -p "\$site"/cu13/{bin,include,lib,nvvm/bin} "\$site"/{cudnn,nccl}/{include,lib}
cat >"\$site/cu13/bin/nvcc" <<'NVCC'
#!$BASH
case " \$* " in *" --version "*) echo "Cuda compilation tools, release 13.0, V13.0.0" ;; esac
NVCC
touch "\$site"/cu13/include/{cuda_runtime_api,cublasLt}.h "\$site"/cu13/lib/{libcudart.so.13,libcublasLt.so.13,libcudart_static.a} "\$site"/cudnn/include/cudnn_graph.h \\
    "\$site"/cudnn/lib/libcudnn.so.9 "\$site"/nccl/lib/libnccl.so.2
printf '#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 7\n#define CUDNN_PATCHLEVEL 0\n' >"\$site/cudnn/include/cudnn_version.h"
printf '#define NCCL_MAJOR 2\n#define NCCL_MINOR 25\n#define NCCL_PATCH 1\n' >"\$site/nccl/include/nccl.h"
SH
cat >bin/cmake <<SH
#!$BASH
[[ \$1 != --build ]] || { echo "\$2" >$work/would-build; exit; }
exec $(command -v cmake) "\$@"
SH
chmod +x bin/* wheels.sh

line=$(grep -E '^scripts/setup.sh build .*cuda_from_pip' "$source_dir/docs/building.md")
[[ $(wc -l <<<"$line") == 1 && $line == *cmake*--build* ]] || complain "docs/building.md has no such line: '$line'"
(cd tree && PATH=$work/bin:$PATH bash -c "$line") >"$out" 2>&1
status=$?
[[ $status != 5 ]] || { echo "SKIPPED: $(grep -m1 setup "$out")" >&2; exit 77; }
[[ $status == 0 ]] || complain "the line of docs/building.md: exit $status: $(tail -n 8 "$out")"
grep -q -- "--require-hashes -r $work/tree/scripts/requirements/cuda.txt" pip-calls || complain "pip was asked for: $(cat pip-calls)"
folder=tree/$(cat would-build)
[[ -f $folder/build.ninja ]] || complain "the line builds in $(cat would-build), which it has not configured"
for name in TOWERS_NVCC CUDART_INCLUDE_DIR CUBLASLT_LIBRARY CUDNN_LIBRARY NCCL_LIBRARY; do
    grep -q "^$name:[A-Z]*=$work/tree/third_party/cuda/" "$folder/CMakeCache.txt" || complain "CMake takes $(grep "^$name:" "$folder/CMakeCache.txt")"
done
(cd tree/third_party/cuda && find . | sort && find . -type l -printf '%p %l\n' | sort) >before
said=$(grep -o 'toolkit in .*' "$out")
[[ $said == "toolkit in $work/tree/third_party/cuda"*"cmake --preset cuda && cmake --build build-cuda" ]] || complain "the script says: $said"

# again, and into a folder of one's own
(cd tree && PATH=$work/bin:$PATH scripts/cuda_from_pip.sh) >"$out" 2>&1 || complain "a second run: $(tail -n 3 "$out")"
(cd tree/third_party/cuda && find . | sort && find . -type l -printf '%p %l\n' | sort) | cmp -s - before || complain "a second run changes the toolkit"
(cd tree && PATH=$work/bin:$PATH scripts/cuda_from_pip.sh "$work/own") >"$out" 2>&1 || complain "a folder of one's own: $(tail -n 3 "$out")"
grep -q -- "-DCUDAToolkit_ROOT=$work/own " "$out" && [[ -e own/lib64/libcudart.so ]] || complain "a folder of one's own: $(tail -n 1 "$out")"
check_end "the line for CUDA runs as it is printed"
