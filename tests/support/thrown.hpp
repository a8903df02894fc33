#pragma once
// The tutti::Error that an action throws, for tests that check its source and message.

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

namespace tutti {

template <class Action>
Error thrown_by(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorSource::internal, "nothing was thrown");
}

}  // namespace tutti
