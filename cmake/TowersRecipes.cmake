# Texts travel inside the binary: inception/recipes/*.yaml, the published weights and names of classes in inception/models/, and
# the frame, style and script of inception/report/.
function(towers_embeds out header table)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} "-DOUT=${out}" "-DFILES=${ARGN}" "-DHEADER=${header}" "-DTABLE=${table}" -P ${CMAKE_SOURCE_DIR}/cmake/embed_texts.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed_texts.cmake VERBATIM)
endfunction()
file(GLOB RECIPE_FILES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/inception/recipes/*.yaml)
set(RECIPES_C ${CMAKE_BINARY_DIR}/generated/recipes.c ${CMAKE_BINARY_DIR}/generated/model_texts.c ${CMAKE_BINARY_DIR}/generated/report_texts.c)
towers_embeds(${CMAKE_BINARY_DIR}/generated/recipes.c inception/options/recipe.h "Recipe recipes" ${RECIPE_FILES})
towers_embeds(${CMAKE_BINARY_DIR}/generated/model_texts.c inception/models/published.h "EmbeddedText model_texts"
  ${CMAKE_SOURCE_DIR}/inception/models/imagenet.txt ${CMAKE_SOURCE_DIR}/inception/models/weights.json)
towers_embeds(${CMAKE_BINARY_DIR}/generated/report_texts.c inception/report/report.h "EmbeddedText report_texts"
  ${CMAKE_SOURCE_DIR}/inception/report/page/page.html ${CMAKE_SOURCE_DIR}/inception/report/page/report.css
  ${CMAKE_SOURCE_DIR}/inception/report/page/readings.js)
