// Taking a photo: with the camera's own picture where the browser gives it to this page, and
// otherwise by the device's own means, as telephones have them.

export const startCamera = (add, complain) => {
  const dialog = document.getElementById("camera");
  const view = document.getElementById("view");
  const shot = document.getElementById("shot");

  const stop = () => {
    for (const track of view.srcObject?.getTracks() ?? []) track.stop();
    view.srcObject = null;
  };

  const open = async () => {
    complain(null);
    const byHand = matchMedia("(pointer: coarse)").matches;
    if (byHand || !navigator.mediaDevices?.getUserMedia) return shot.click();
    try {
      const wanted = { video: { width: { ideal: 1600 } }, audio: false };
      view.srcObject = await navigator.mediaDevices.getUserMedia(wanted);
      dialog.showModal();
    } catch {
      complain(new Error("there is no camera that this page may use"));
    }
  };

  document.getElementById("photograph").addEventListener("click", open);
  shot.addEventListener("change", () => {
    add([...shot.files]);
    shot.value = "";
  });
  document.getElementById("leave").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", stop);
  document.getElementById("release").addEventListener("click", () => {
    const canvas = document.createElement("canvas");
    canvas.width = view.videoWidth;
    canvas.height = view.videoHeight;
    canvas.getContext("2d").drawImage(view, 0, 0);
    canvas.toBlob(
      (blob) => {
        dialog.close();
        if (blob) add([new File([blob], "photo.jpg", { type: "image/jpeg" })]);
      },
      "image/jpeg",
      0.92,
    );
  });
};
