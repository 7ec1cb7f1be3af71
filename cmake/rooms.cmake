# Rooms, lowest first, and the programs and libraries made of them.
quire_room(base src/base Threads::Threads)
quire_room(core src/core)
quire_room(expr src/expr)
quire_room(json src/json PkgConfig::JANSSON)
quire_room(grammar src/grammar)
quire_room(file src/file PkgConfig::XXHASH PkgConfig::PCRE2)
quire_room(hub src/hub PkgConfig::OPENSSL)
target_include_directories(quire_hub PRIVATE ${CURL_INCLUDE_DIRS}) # its header alone: src/hub/hub_http.c opens the library when it is needed
quire_room(text src/text PkgConfig::PCRE2 PkgConfig::UTF8PROC)
quire_room(jinja src/jinja PkgConfig::UTF8PROC)
quire_room(chat src/chat)
quire_room(kv src/kv PkgConfig::XXHASH PkgConfig::URING PkgConfig::HIREDIS)
quire_room(cpu src/backend/cpu)
quire_room(model src/model)
quire_room(sched src/sched)
quire_room(sample src/sample)
quire_room(spec src/spec)
quire_room(request src/request)
quire_room(answer src/answer)
quire_room(engine src/engine)
quire_room(options src/options)
quire_room(setup src/setup)
quire_room(stream src/stream)
quire_room(api src/api)
quire_room(programs src/program)
quire_room(execute src/execute)
quire_room(server src/server PkgConfig::EVENT http_parser PkgConfig::OPENSSL)
quire_room(cli src/cli PkgConfig::EDIT) # without its main, which is of one program only
get_target_property(cli_sources quire_cli SOURCES)
list(REMOVE_ITEM cli_sources ${CMAKE_SOURCE_DIR}/src/cli/main.c)
set_property(TARGET quire_cli PROPERTY SOURCES ${cli_sources})
string(TIMESTAMP quire_man_date "%Y-%m-%d" UTC) # SOURCE_DATE_EPOCH, where it is set
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/man_page.c PROPERTIES COMPILE_DEFINITIONS "QUIRE_MAN_DATE=\"${quire_man_date}\"")
include(cmake/isa.cmake)

# The built-in models, as bytes in the binary.
set(QUIRE_BUILTIN ${CMAKE_SOURCE_DIR}/models/builtin.gguf)
set(QUIRE_BUILTIN_SMALL ${CMAKE_SOURCE_DIR}/models/builtin-small.gguf)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/setup/builtin.c PROPERTIES
    OBJECT_DEPENDS "${QUIRE_BUILTIN};${QUIRE_BUILTIN_SMALL}"
    COMPILE_DEFINITIONS "QUIRE_BUILTIN_PATH=\"${QUIRE_BUILTIN}\";QUIRE_BUILTIN_SMALL_PATH=\"${QUIRE_BUILTIN_SMALL}\"")

# The pages at / and /pool and the texts of the sandbox, the same way.
set(QUIRE_PAGES ${CMAKE_SOURCE_DIR}/src/server/pages)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/file/checksum_avx2.c PROPERTIES COMPILE_OPTIONS -mavx2)
endif()
# Whole rows of the vocabulary: vector registers, whatever the build type. Without traps a choice between two floats needs no branch; no value changes.
set(quire_rows_options -O3 -fno-trapping-math)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/sample/sampler_rows_plain.c PROPERTIES COMPILE_OPTIONS "${quire_rows_options}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/core/quantise_k.c ${CMAKE_SOURCE_DIR}/src/backend/cpu/pack_blocks.c
    ${CMAKE_SOURCE_DIR}/src/backend/cpu/pack_floats.c PROPERTIES COMPILE_OPTIONS "${quire_rows_options}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/sample/sampler_rows_avx2.c PROPERTIES COMPILE_OPTIONS "${quire_rows_options};-mavx2;-mfma;-mbmi;-mpopcnt")
    set(quire_rows_avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx512vbmi2 -mfma -mbmi -mpopcnt)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/sample/sampler_rows_avx512.c PROPERTIES COMPILE_OPTIONS "${quire_rows_options};${quire_rows_avx512}")
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/server/web_pages.c PROPERTIES
    OBJECT_DEPENDS "${QUIRE_PAGES}/home.html;${QUIRE_PAGES}/pool.html;${QUIRE_PAGES}/sandbox.txt;${QUIRE_PAGES}/openapi.json" COMPILE_DEFINITIONS "QUIRE_PAGES_PATH=\"${QUIRE_PAGES}\"")

set(QUIRE_LIBRARIES Threads::Threads PkgConfig::JANSSON PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::URING PkgConfig::HIREDIS PkgConfig::OPENSSL ${CMAKE_DL_LIBS} m)
set(QUIRE_CORE_ROOMS base core expr json grammar file hub text jinja chat kv cpu model sched sample spec request answer engine options setup stream api programs execute)

# Everything below the programs, for those of this repository: they use inner names too. What is installed is in library.cmake.
set(quire_objects)
foreach(room ${QUIRE_CORE_ROOMS})
    list(APPEND quire_objects $<TARGET_OBJECTS:quire_${room}> ${quire_kernels_of_${room}})
endforeach()
add_library(quire_rooms STATIC ${quire_objects})
target_include_directories(quire_rooms PUBLIC ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(quire_rooms PUBLIC ${QUIRE_LIBRARIES})

# quire_executable(TARGET NAME MAIN ROOMS...): a program of the cli's and the server's rooms and of those.
function(quire_executable target name main)
    set(objects $<TARGET_OBJECTS:quire_cli> $<TARGET_OBJECTS:quire_server>)
    foreach(room ${ARGN})
        list(APPEND objects $<TARGET_OBJECTS:quire_${room}> ${quire_kernels_of_${room}})
    endforeach()
    add_executable(${target} ${CMAKE_SOURCE_DIR}/${main} ${objects})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PRIVATE quire_rooms PkgConfig::EVENT http_parser PkgConfig::OPENSSL PkgConfig::EDIT)
endfunction()

quire_executable(quire_program quire src/cli/main.c)
