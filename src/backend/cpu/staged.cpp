#include "backend/cpu/staged.hpp"

namespace tutti::cpu {

Staged::Staged(const Layout& given, const Layout& wanted)
    : given_(given), wanted_(wanted), same_(given == wanted), copy_(same_ ? Buffer() : allocate_host(wanted.bytes())) {}

const void* Staged::load(CpuStream& stream, const void* address) {
  given_address_ = const_cast<void*>(address);
  if (!same_) convert_activation(stream, {given_, given_address_}, {wanted_, copy_.data()});
  return this->address();
}

void Staged::deliver(CpuStream& stream) {
  if (!same_) convert_activation(stream, {wanted_, copy_.data()}, {given_, given_address_});
}

void Staged::deliver_gradient(CpuStream& stream, void* values, void* to) const {
  if (!same_ && to != nullptr) convert_activation(stream, {wanted_, values}, {given_, to});
}

}  // namespace tutti::cpu
