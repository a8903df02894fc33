#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/base/version.hpp"

#include "download.hpp"

#include <curl/curl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <exception>
#include <stdexcept>
#include <string_view>

namespace tutti {
namespace {

constexpr const char* kLibrary = "libcurl.so.4";
constexpr long kSecondsToConnect = 20;
constexpr long kSecondsOfSilence = 60;
constexpr long kMostRedirections = 5;
constexpr long kBytesAtOnce = 256 * 1024;
constexpr long kRangeNotSatisfiable = 416;

// What a missing library says.
struct NotThere : std::runtime_error {
  using runtime_error::runtime_error;
};

struct CloseLibrary {
  void operator()(void* library) const noexcept { static_cast<void>(::dlclose(library)); }
};

// The few functions that are needed, out of a library that only those who fetch data must have.
class Curl {
 public:
  // Throws NotThere.
  Curl() : library_(::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    if (!library_)
      throw NotThere(fmt::format("{} cannot be opened ({}): install it, or name its folder in LD_LIBRARY_PATH",
                                 kLibrary, last_error()));
    find(initialize_, "curl_global_init");
    find(make, "curl_easy_init");
    find(set, "curl_easy_setopt");
    find(perform, "curl_easy_perform");
    find(ask, "curl_easy_getinfo");
    find(text_of, "curl_easy_strerror");
    find(release, "curl_easy_cleanup");
    if (const CURLcode status = initialize_(CURL_GLOBAL_DEFAULT); status != CURLE_OK) {
      throw NotThere(fmt::format("{} does not start: {}", kLibrary, text_of(status)));
    }
  }

  decltype(&curl_easy_init) make = nullptr;
  decltype(&curl_easy_setopt) set = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  decltype(&curl_easy_getinfo) ask = nullptr;
  decltype(&curl_easy_strerror) text_of = nullptr;
  decltype(&curl_easy_cleanup) release = nullptr;

 private:
  static std::string last_error() {
    const char* text = ::dlerror();
    return text == nullptr ? "no reason given" : text;
  }
  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_.get(), name));
    if (function == nullptr) throw NotThere(fmt::format("{} lacks {}: {}", kLibrary, name, last_error()));
  }

  UniqueHandle<void*, CloseLibrary> library_;
  decltype(&curl_global_init) initialize_ = nullptr;
};

// One transfer; what `take` throws waits here while libcurl's frames are left.
class Transfer {
 public:
  Transfer(const Curl& curl, const Download& request) : curl_(curl), request_(request), handle_(curl.make()) {
    if (handle_ == nullptr) throw NotThere(fmt::format("{} has no memory for a transfer", kLibrary));
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() { curl_.release(handle_); }

  DownloadResult run() {
    set_all();
    const CURLcode status = curl_.perform(handle_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    if (status == CURLE_OK) return {};
    long response = 0;
    check(curl_.ask(handle_, CURLINFO_RESPONSE_CODE, &response));
    if (status == CURLE_RANGE_ERROR || response == kRangeNotSatisfiable) {
      return {DownloadEnd::no_ranges, "it cannot go on where the file broke off"};
    }
    if (status == CURLE_HTTP_RETURNED_ERROR) return {DownloadEnd::refused, fmt::format("HTTP status {}", response)};
    const std::string_view words = reason_.front() == '\0' ? curl_.text_of(status) : reason_.data();
    return {response != 0 ? DownloadEnd::broken_off : DownloadEnd::refused, std::string(words)};
  }

 private:
  static std::size_t take(char* bytes, std::size_t, std::size_t count, void* transfer) noexcept {
    auto& self = *static_cast<Transfer*>(transfer);
    try {
      self.request_.take(std::as_bytes(std::span(bytes, count)));
      return count;
    } catch (...) {
      self.failure_ = std::current_exception();
      return 0;
    }
  }

  void check(CURLcode status) const {
    if (status == CURLE_OK) return;
    throw Error(ErrorSource::internal, fmt::format("{} refuses an option: {}", kLibrary, curl_.text_of(status)));
  }
  template <class Value>
  void set(CURLoption option, Value value) {
    check(curl_.set(handle_, option, value));
  }
  void set_all() {
    set(CURLOPT_ERRORBUFFER, reason_.data());
    set(CURLOPT_URL, request_.url.c_str());
    set(CURLOPT_USERAGENT, fmt::format("tutti/{}", version()).c_str());
    set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(request_.from));
    set(CURLOPT_WRITEFUNCTION, &Transfer::take);
    set(CURLOPT_WRITEDATA, static_cast<void*>(this));
    set(CURLOPT_BUFFERSIZE, kBytesAtOnce);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMostRedirections);
    set(CURLOPT_CONNECTTIMEOUT, kSecondsToConnect);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, kSecondsOfSilence);
    set(CURLOPT_NOSIGNAL, 1L);
  }

  const Curl& curl_;
  const Download& request_;
  CURL* handle_;
  std::array<char, CURL_ERROR_SIZE> reason_{};
  std::exception_ptr failure_;
};

}  // namespace

DownloadResult download(const Download& request) {
  try {
    const Curl curl;
    return Transfer(curl, request).run();
  } catch (const NotThere& missing) {
    return {DownloadEnd::refused, missing.what()};
  }
}

}  // namespace tutti
