#pragma once
// How gradients meet, and who keeps the optimizer's state.

#include "tutti/base/words.hpp"

namespace tutti {

// ring: an f32 sum everywhere. exact: a sum whose bits do not depend on the ranks. sharded: an f32 sum of which every
// rank gets a share, updates it and passes the weights on. central: rank 0 does so, with all of them.
enum class Exchange { ring, exact, sharded, central };
constexpr std::array<std::string_view, 4> words_of(Exchange) { return {"ring", "exact", "sharded", "central"}; }

// Who updates the weights and keeps the optimizer's state for it.
enum class Owners { everyone, shares, first };

struct ExchangeOptions {
  Exchange kind = Exchange::ring;
  bool shard_optimizer = false;  // with exact: each rank updates its share; sharded always does

  Owners owners() const {
    if (kind == Exchange::central) return Owners::first;
    return kind == Exchange::sharded || shard_optimizer ? Owners::shares : Owners::everyone;
  }
};

}  // namespace tutti
