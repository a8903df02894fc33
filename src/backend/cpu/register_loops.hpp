#pragma once
// Loops that do nothing but multiply and add on registers: what the processor can do at most.

#include <cstdint>

namespace tutti::cpu {

struct RegisterLoop {
  float (*run)(std::int64_t rounds) =
      nullptr;            // returns what keeps the compiler from leaving it out; null: there is none
  double operations = 0;  // of a round, a multiply-add counting as two
};

RegisterLoop f32_register_loop();
RegisterLoop bf16_register_loop();

}  // namespace tutti::cpu
