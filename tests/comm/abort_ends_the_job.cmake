# Runs COMMAND (a launcher with a program in which one rank aborts), and fails unless the whole job ends with an error.
# Launchers may change the exit status, so any but 0 is accepted. A job that exceeds the time limit counts as hanging.
set(time_limit_seconds 60)
execute_process(COMMAND ${COMMAND} TIMEOUT ${time_limit_seconds} RESULT_VARIABLE status OUTPUT_VARIABLE output
                ERROR_VARIABLE output)
if(status MATCHES "timeout")
  message(FATAL_ERROR "the job still ran after ${time_limit_seconds} seconds:\n${output}")
elseif(status STREQUAL "0")
  message(FATAL_ERROR "the job ended with status 0 although a rank aborted:\n${output}")
elseif(NOT output MATCHES "all ranks are there")
  message(FATAL_ERROR "the job did not start: ${status}\n${output}")
elseif(output MATCHES "went on after the abort")
  message(FATAL_ERROR "${output}")
endif()
