# Write FILE with the commit of the sources in SOURCE, if it has changed: cmake -DSOURCE=DIR -DFILE=commit.h -P commit.cmake
set(commit "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT "#define TOWERS_COMMIT \"${commit}\"\n")
