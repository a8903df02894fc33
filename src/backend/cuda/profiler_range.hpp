#pragma once
// What the host is enqueuing, for NVIDIA's profilers: ranges that follow each other. Costs next to nothing while none
// of them looks.

namespace tutti::cuda {

class ProfilerRange {
 public:
  ProfilerRange() = default;
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() { end(); }

  // Ends the last one. In one thread.
  void begin(const char* name);

 private:
  void end();
  bool open_ = false;
};

}  // namespace tutti::cuda
