/* A library needs at least one source file, also where no .proto exists. */
typedef int towers_empty;
