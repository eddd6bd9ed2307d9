/* The list of case tables; see cases.h. */
#include "tests/support/cases.h"

const CaseTable *const case_tables[] = {&input_cases,      &conv_cases, &dense_cases,   &norm_cases,
                                        &activation_cases, &pool_cases, &channel_cases, &elementwise_cases,
                                        &loss_cases,       NULL};
