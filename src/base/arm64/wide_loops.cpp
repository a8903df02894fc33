#include "wide_loops.hpp"

namespace tutti {

void draw(std::uint64_t seed, const RandomCounter& start, int dropped, std::span<double> numbers) {
  draw_numbers(seed, start, dropped, numbers);
}

template <class T>
std::uint64_t digest_sum(std::uint64_t start, const T* values, std::size_t count) {
  return add_digests(start, values, count);
}
template std::uint64_t digest_sum(std::uint64_t, const float*, std::size_t);
template std::uint64_t digest_sum(std::uint64_t, const double*, std::size_t);
template std::uint64_t digest_sum(std::uint64_t, const std::uint8_t*, std::size_t);
template std::uint64_t digest_sum(std::uint64_t, const std::int32_t*, std::size_t);
template std::uint64_t digest_sum(std::uint64_t, const std::int64_t*, std::size_t);

}  // namespace tutti
