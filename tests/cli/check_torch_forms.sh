#!/usr/bin/env bash
# Weights in every form that torch.save has, and in what trainers save around them, are read to the bit: tests/support/torch_forms.py.
. "$1/tests/support/check.sh"
needs_python
kept=${XDG_CACHE_HOME:-$HOME/.cache}/towers
python=python3
for other in "${TORCH_PYTHON:-}" "$kept/torch/bin/python" "$kept/timm/bin/python"; do
    [[ -z $other ]] || ! "$other" -c 'import torch' 2>/dev/null || python=$other
done
"$python" -c 'import torch' 2>/dev/null || left_out "the forms that PyTorch itself writes: no Python with torch"
PYTHONDONTWRITEBYTECODE=1 "$python" "$source_dir/tests/support/torch_forms.py" "$weights" "$work" 2>"$err" || complain "$(cat "$err")"
check_end "every form of weights is read, and damaged ones are refused"
