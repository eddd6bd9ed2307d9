/* When an option has an effect: the column `when` of options.def, read here.
 *
 *   clauses     separated by blanks, all of which must hold: "augment crop=box"
 *   augment     that option is on: not empty, 0, false or none
 *   opt=adam,lamb   that option has one of these values
 *   uses=betas  the optimizer of --opt reads momentum, betas, decay, epsilon or trust (optimizers.def); a clause about `opt`
 *   !eval-crop  the clause does not hold
 *   a|b         one of both holds
 *   data=bench,show   for the command `data` only: its first argument is one of these. doctor=--hosts: for `doctor` only: the
 *               option is on
 *   model=gan   what the model must be or have, which is known later: classifier, critic, generator, dropout, drop-path, width, penalty
 *
 * A clause about an option that the command lacks holds. It is an error to give an option whose condition does not hold on
 * the command line, unless to turn it off. From a file, a recipe or a model it is accepted, because those serve several
 * commands. */
#pragma once

#include "inception/options/options.h"
#include "towers/graph/model.h"

/* Everything but clauses about the model: ERR_ARG naming the option and what it applies to. */
NODISCARD Status conditions_check(const Options *options);
/* The clauses about the model: ERR_ARG; and ERR_UNSUPPORTED, wherever it was set, for what this model cannot do. */
NODISCARD Status conditions_of_model_check(const Options *options, const Model *model);
/* Whether help about this model (NULL: a classifier) should show the option. */
bool option_concerns(OptionId id, const Model *model);
/* "adam, adamw and lamb" for an option whose condition is `uses`; else "". */
const char *option_optimizers(OptionId id, char *text, size_t bytes);
/* The condition in sentences: "Only with --augment. Only with --crop box."; "" if there is none, or if option_optimizers
 * says it. For one command, or for all of them (VERB_NONE): "towers export: only with --int8." */
void condition_say(OptionId id, Verb verb, char *text, size_t bytes);
/* Whether the condition of `id` asks for that other option. */
bool condition_asks(OptionId id, OptionId other);
/* For the test of the table: ERR_INTERNAL for a condition that cannot be read. */
NODISCARD Status condition_read(OptionId id);
