/* Settling: a command's options get, in place of what was left to the program (auto, max, a default that depends on the model, its
 * weights, the data or the machine), the value that the run has.
 *
 * These functions, parsing and options_apply_* are all that changes Options (tests/support/check_map.py). A command settles what is open
 * when it begins, and --print-config prints that; predict, generate, fid and sweep settle a copy when they run, so that their
 * --print-config prints what was given. What follows takes const Options; args.yaml has the values. */
#pragma once

#include "inception/options/options.h"

/* Where a value comes from stays as it is: args.yaml says who left it to the program. The option is of this type. */
void option_settle_int(Options *options, OptionId id, int64_t value);
void option_settle_real(Options *options, OptionId id, double value);
void option_settle_flag(Options *options, OptionId id, bool value);
void option_settle_choice(Options *options, OptionId id, int value);
NODISCARD Status option_settle_text(Options *options, OptionId id, const char *value); /* copied */
void option_settle_default(Options *options, OptionId id);
/* As if it had not been given, so that a lower origin may set it; returns where it came from. option_give restores that. */
OptionOrigin option_withdraw(Options *options, OptionId id);
void option_give(Options *options, OptionId id, OptionOrigin origin);

/* Another text in the place of an argument that was given; copied. */
NODISCARD Status option_settle_argument(Options *options, int i, const char *value);
/* The first argument becomes the name of a model: of a run, a file of weights, or a folder in its place. `model` is static. */
void options_name_model(Options *options, const char *model);
/* From now on these are options of another command, which has its own and uses them in its way; returns the command before. */
Verb options_serve(Options *options, Verb verb);
/* For a command that settles options for a part of its work: close the copy. Arguments are borrowed as those of `from`. */
NODISCARD Status options_copy(const Options *from, Options *made);
