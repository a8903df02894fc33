#pragma once
// What a process wants done before it is ended from outside of its own thread, for as long as there is something to do.

#include <functional>
#include <memory>

namespace tutti {

class EndAction {
 public:
  // Empty: nothing is to be done. Returns when the action before is not, and will not be, carried out.
  void set(std::function<void()> action);
  // In a thread of its own, which is waited for so long at most.
  void carry_out(double seconds) const;

 private:
  struct Kept;
  std::shared_ptr<Kept> kept_ = make_kept();

  static std::shared_ptr<Kept> make_kept();
};

}  // namespace tutti
