# Files of a room for one instruction set, by name: *_avx2.c, *_avx512.c, *_avx512bf16.c, *_amx.c, *_neon.c and *_i8mm.c are compiled
# for what their names say and called only where the processor has it. Each processor builds its own ones, and the plain files.
include(CheckCCompilerFlag)
set(isa_avx2_flags -mavx2 -mfma -mf16c)
set(isa_avx512_flags ${isa_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
set(isa_avx512bf16_flags ${isa_avx512_flags} -mavx512bf16)
set(isa_amx_flags ${isa_avx512_flags} -mavx512vbmi -mamx-tile -mamx-int8)
set(isa_neon_flags -march=armv8.2-a+dotprod)
set(isa_i8mm_flags ${isa_neon_flags}+i8mm)
set(isa_native)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(isa_native avx2 avx512 avx512bf16)
    check_c_compiler_flag("-mamx-tile -mamx-int8" QUIRE_COMPILES_AMX)
    if(QUIRE_COMPILES_AMX)
        list(APPEND isa_native amx)
    endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(isa_native neon i8mm)
endif()

# At -O1 gcc emits no vzeroupper, and code without AVX that runs after such a kernel takes some 30 times as long: -fexpensive-optimizations brings it
# back. Following variables through registers takes half of these files' time to compile.
set(isa_debug_flags)
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_BUILD_TYPE STREQUAL Debug)
    set(isa_debug_flags -fexpensive-optimizations -fno-var-tracking)
endif()

# quire_isa(ROOM PATH): sets the flags of quire_ROOM's files of this processor's instruction sets, and leaves out those of others.
# Call it where the room is made: a file's options belong to a directory of CMake's.
function(quire_isa room path)
    get_target_property(files quire_${room} SOURCES)
    foreach(isa avx2 avx512 avx512bf16 amx neon i8mm)
        file(GLOB of_isa ${CMAKE_SOURCE_DIR}/${path}/*_${isa}.c)
        if(NOT isa IN_LIST isa_native)
            list(REMOVE_ITEM files ${of_isa})
        elseif(of_isa)
            set_property(SOURCE ${of_isa} APPEND PROPERTY COMPILE_OPTIONS ${isa_${isa}_flags})
            if(isa MATCHES "avx|amx")
                set_property(SOURCE ${of_isa} APPEND PROPERTY COMPILE_OPTIONS ${isa_debug_flags})
            endif()
        endif()
    endforeach()
    set_property(TARGET quire_${room} PROPERTY SOURCES ${files})
endfunction()
quire_isa(cpu src/backend/cpu)
if(avx512 IN_LIST isa_native)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/backend/cpu/linear_grids_avx512.c APPEND PROPERTY COMPILE_OPTIONS -mavx512vbmi)
endif()
if(amx IN_LIST isa_native) # isa.c then has its kernels
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/backend/cpu/isa.c APPEND PROPERTY COMPILE_DEFINITIONS QUIRE_AMX)
endif()

# AMX's kernels over a model of its instructions, which need AVX2: in trees with tests.
set(isa_amx_model ${CMAKE_SOURCE_DIR}/src/backend/cpu/linear_amx_model.c)
if(avx2 IN_LIST isa_native AND QUIRE_TESTS)
    set_property(SOURCE ${isa_amx_model} APPEND PROPERTY COMPILE_OPTIONS ${isa_avx2_flags} ${isa_debug_flags})
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/backend/cpu/isa.c APPEND PROPERTY COMPILE_DEFINITIONS QUIRE_AMX_MODEL)
else()
    get_target_property(cpu_files quire_cpu SOURCES)
    list(REMOVE_ITEM cpu_files ${isa_amx_model})
    set_property(TARGET quire_cpu PROPERTY SOURCES ${cpu_files})
endif()

# The runners of attention programs are plain loops, of which the compiler makes vectors.
set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/backend/cpu/attention_run_avx2.c ${CMAKE_SOURCE_DIR}/src/backend/cpu/attention_run_avx512.c
    ${CMAKE_SOURCE_DIR}/src/backend/cpu/attention_run_neon.c APPEND PROPERTY COMPILE_OPTIONS -O3 -fno-trapping-math)

# They take most of a tree's time to compile, and are the same in every build type: another tree may have them.
set(QUIRE_KERNELS_FROM "" CACHE PATH "A release tree, built with the same compiler, whose objects of the CPU's kernels are linked in place of this one's")
set(quire_kernels_of_cpu)
if(QUIRE_KERNELS_FROM)
    file(GLOB isa_kernels RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_avx*.c)
    if(amx IN_LIST isa_native)
        list(APPEND isa_kernels src/backend/cpu/linear_amx.c)
    endif()
    list(TRANSFORM isa_kernels REPLACE "(.+)" "${QUIRE_KERNELS_FROM}/CMakeFiles/quire_cpu.dir/\\1.o" OUTPUT_VARIABLE quire_kernels_of_cpu)
    list(TRANSFORM isa_kernels PREPEND ${CMAKE_SOURCE_DIR}/)
    get_target_property(cpu_files quire_cpu SOURCES)
    list(REMOVE_ITEM cpu_files ${isa_kernels})
    set_property(TARGET quire_cpu PROPERTY SOURCES ${cpu_files})
endif()
