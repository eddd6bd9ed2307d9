# What Debian's policy wants besides what `cmake --install` installs; cpack runs this in the staged folder before it packs.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
set(share ${CPACK_TEMPORARY_DIRECTORY}/usr/share)
file(WRITE ${share}/doc/towers/copyright "Towers\n\nCopyright: 2026 The Towers authors\n\nLicense: Apache-2.0\n\n\
On Debian systems, the text of the license is in /usr/share/common-licenses/Apache-2.0.\n")
file(REMOVE ${share}/doc/towers/LICENSE)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${share}/doc/towers/changelog
  "towers (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
file(WRITE ${share}/lintian/overrides/towers
  "# One package has program, library and header: the library serves programs that are built on the same machine.\n"
  "towers: package-name-doesnt-match-sonames *\ntowers: link-to-shared-library-in-wrong-package *\n"
  "# cpack writes these scripts for every package with a library, besides the trigger.\ntowers: maintscript-calls-ldconfig *\n")
file(GLOB pages RELATIVE ${share} ${share}/man/man1/*.1)
foreach(file doc/towers/changelog ${pages})
  execute_process(COMMAND gzip -9nf ${share}/${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(CHMOD ${share}/doc/towers/copyright ${share}/lintian/overrides/towers PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
