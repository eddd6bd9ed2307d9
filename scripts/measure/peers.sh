# shellcheck shell=bash
# Source this in a benchmark beside PyTorch, with its arguments: takes --torch pip|debian out of them, exports TORCH_PYTHON, and TOWERS,
# which is built unless it is given; the other arguments are left in `more`.
torch=pip more=()
while [ $# -gt 0 ]; do
    case $1 in
    --torch) torch=${2:-} && shift ;;
    --torch=*) torch=${1#*=} ;;
    *) more+=("$1") ;;
    esac
    shift
done
case $torch in
debian)
    scripts/setup.sh build bench
    TORCH_PYTHON=/usr/bin/python3 # Debian's PyTorch belongs to Debian's Python
    ;;
pip)
    scripts/setup.sh build peers
    TORCH_PYTHON=$(scripts/venv.sh torch)
    ;;
*) echo "$0: --torch is pip or debian, not '$torch'" >&2; exit 2 ;;
esac
[ -n "${TOWERS:-}" ] || scripts/build.sh build --preset cpu -DTOWERS_TESTS=OFF -- towers
export TORCH_PYTHON TOWERS=${TOWERS:-build/towers}
