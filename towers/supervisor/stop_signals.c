/* The signals that ask a run to save and to stop; see stop_signals.h. */
#include "towers/supervisor/stop_signals.h"

static Ledger *asked_in; /* where this tower process asks for a stop */

void stop_signals(const TrainJob *job, sigset_t *set)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR2, SIGXCPU};
    sigemptyset(set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaddset(set, numbers[i]);
    if (!job->launcher_signal) sigaddset(set, SIGUSR1);
}

static void stop_ask(int number)
{
    int none = 0;
    atomic_compare_exchange_strong(&asked_in->run.stop_signal, &none, number);
}

void stop_signals_leave(const TrainJob *job, Ledger *ledger)
{
    sigset_t stops;
    struct sigaction ask = {.sa_handler = stop_ask, .sa_flags = SA_RESTART};
    asked_in = ledger;
    stop_signals(job, &stops);
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&stops, number) == 1) signal(number, SIG_IGN);
    sigaction(SIGXCPU, &ask, NULL);
}
