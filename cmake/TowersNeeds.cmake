# What a build cannot do without. Each need that is not met is noted; towers_need_end then names all of them in one message, with the
# packages of Debian and Ubuntu that bring them and the command that installs these.

# towers_need(FOUND PACKAGE): the variable FOUND says whether it is there.
macro(towers_need found package)
  if(NOT ${found})
    list(APPEND towers_missing ${package})
  endif()
endmacro()

# towers_need_module(PREFIX MODULE PACKAGE): a library by its pkg-config module; makes PkgConfig::PREFIX.
macro(towers_need_module prefix module package)
  if(PKG_CONFIG_EXECUTABLE)
    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${module})
  endif()
  towers_need(${prefix}_FOUND ${package})
endmacro()

# towers_need_end(GROUP ELSE): GROUP is that of scripts/setup.sh; ELSE is another way out, or "".
function(towers_need_end group else)
  if(NOT towers_missing)
    return()
  endif()
  list(JOIN towers_missing " " packages)
  message(FATAL_ERROR "not found: ${packages}. `scripts/setup.sh ${group}` installs them on Debian and Ubuntu, or an administrator "
    "by `apt-get install ${packages}`${else}; elsewhere install their equivalents, and configure again.")
endfunction()
