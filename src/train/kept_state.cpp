#include "kept_state.hpp"

namespace tutti {

KeptState::KeptState(Backend& backend, Replica& replica)
    : backend_(backend), replica_(replica), blocks_(replica.state_blocks()) {
  for (const Tensor& block : blocks_) copies_.push_back(backend.allocate(block.bytes()));
}

void KeptState::keep() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    backend_.copy(replica_.stream(), copies_[i].view(blocks_[i].shape, blocks_[i].type), blocks_[i]);
  }
  exchange_ = replica_.exchange_state();
}

void KeptState::bring_back() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    backend_.copy(replica_.stream(), blocks_[i], copies_[i].view(blocks_[i].shape, blocks_[i].type));
  }
  replica_.state_is_back(exchange_);
}

std::size_t KeptState::bytes() const {
  std::size_t bytes = 0;
  for (const Buffer& copy : copies_) bytes += copy.bytes();
  return bytes;
}

}  // namespace tutti
