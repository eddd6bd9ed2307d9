/* The table of rules: the row `name` of ops.def has shape_name and grad_name, defined in the file of its family. */
#include "towers/graph/rules.h"

const OpRules op_rules[OP_COUNT] = {
#define OP(KIND, name, ...) [OP_##KIND] = {shape_##name, grad_##name},
#include "kernels/ops.def"
};
