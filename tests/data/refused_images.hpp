#pragma once
// Images that cannot be decoded.

#include "tutti/base/error.hpp"

#include "data/image_codec.hpp"
#include "data/written_sets.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tutti::testing_support {

// The text of the error, which is of the input and names the file.
inline std::string refusal_of_image(const Bytes& file, std::int64_t channels = 3) {
  Bytes pixels;
  const Error error = thrown_by([&] { decode_image({file, "a/b.jpg"}, channels, pixels); });
  EXPECT_THAT(error, reports(ErrorSource::input, "the image 'a/b.jpg' cannot be decoded: "));
  return error.what();
}

}  // namespace tutti::testing_support
