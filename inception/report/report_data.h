/* The part of a report about data: how long the run waited for data and why, which images could not be decoded, the
 * first batch as the network saw it, and the most confident mistakes; and about restarts. Each function writes a whole
 * section, or nothing if the run has no such file. Every list and picture is bounded, whatever the files contain. */
#pragma once

#include "towers/record/run_read.h"

/* Class maps of mistakes: so many, in RUN/cam/00000k-mistake.png, and their list. */
#define MISTAKE_MAP "mistake"
#define MISTAKE_MAPS_CSV "cam.csv"
enum { MISTAKE_MAPS = 4 };

void section_open(FILE *to, const char *title); /* ends with </section> */
void data_html(const Run *run, FILE *to);
void bad_samples_html(const Run *run, FILE *to);
void restarts_html(const Run *run, FILE *to);
void generated_html(const Run *run, FILE *to);
void pictures_html(const Run *run, FILE *to);
